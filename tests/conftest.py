"""What holds for all tests."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two threads round otherwise, and on a busy machine they mostly wait for each other."""
    torch.set_num_threads(1)

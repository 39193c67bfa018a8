"""Fixtures that several test files use."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """Small batches gain nothing from more threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

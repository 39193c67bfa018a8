"""Of a failed check, the exercises show what it says, and no code: the checks have the answers."""

import pytest


def pytest_configure(config):
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "short"  # of an error in the reader's code, the place is enough


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo and call.excinfo.errisinstance((AssertionError, NotImplementedError)):
        said = str(call.excinfo.value).split("\nassert ")[0]  # pytest adds both sides
        unwritten = call.excinfo.errisinstance(NotImplementedError)
        report.longrepr = said or ("not written yet" if unwritten else "an assert fails")
    return report

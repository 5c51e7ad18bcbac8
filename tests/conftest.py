"""What every test may use, and how tests that need more than Python say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("patient", settings.get_profile("default"), deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parent.parent

JAVA_MARKERS = ("integration", "spark")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the repository."""
    return REPOSITORY


def pytest_configure() -> None:
    # Settings of the machine that the tests happen to run on must not decide what they see.
    for name in list(os.environ):
        if name.startswith(("TIDEGATE_LOCAL_", "TIDEGATE_PRODUCER_", "TIDEGATE_CONSUMER_")):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Java, with the reason, where there is none that is accepted."""
    wanted = [item for item in items if any(item.get_closest_marker(name) for name in JAVA_MARKERS)]
    if not wanted:
        return
    from tidegate.local_stack.java import find_java
    from tidegate.schemas.errors import TidegateError

    try:
        java = find_java()
    except TidegateError as error:
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=str(error)))
        return
    # Spark's scripts look at JAVA_HOME and PATH only.
    os.environ["JAVA_HOME"] = str(java.home)

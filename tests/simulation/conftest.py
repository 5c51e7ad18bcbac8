"""The order of the simulation's tests, and the garbage collector beneath them."""

from __future__ import annotations

import pytest

from tidegate.program.memory import collect_rarely

LONGEST = "test_no_order_of_actions_breaks_a_promise"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, or one core would wait for them in the end."""
    items.sort(key=lambda item: getattr(item, "originalname", None) != LONGEST)


@pytest.fixture(scope="session", autouse=True)
def _garbage_is_collected_rarely() -> None:
    """Set the collector as a worker does: by default it takes a tenth of a seed's CPU time."""
    collect_rarely()

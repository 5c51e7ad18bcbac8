"""The order of the simulation's tests."""

from __future__ import annotations

import pytest

LONGEST = "test_every_fault_and_every_way_of_going_on_is_met"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the test that takes longest, or one core would wait for it in the end."""
    items.sort(key=lambda item: getattr(item, "originalname", None) != LONGEST)

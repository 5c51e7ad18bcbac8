"""A small broker in memory, and workers on it."""

from __future__ import annotations

import pytest

from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group

SLOTS = 4
DATA, PROGRESS = "bank.accounts", "bank-progress"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker():
    return MemoryBroker({DATA: 2, PROGRESS: SLOTS}, group=Group(SLOTS))

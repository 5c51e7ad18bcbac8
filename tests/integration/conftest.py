"""A Kafka broker and a schema registry that the tests of one process share.

For tests that neither stop nor configure them, and that look at topics and groups by their names
only.  All others start a `LocalStack` of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.shared_stack import open_shared_stack
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.shared_stack import SharedStack


@pytest.fixture(scope="session")
def kafka_and_registry(tmp_path_factory):
    """A stack without a simulator, which nothing kills, for all tests of this process."""
    config = load_config(data_dir=tmp_path_factory.mktemp("shared"))
    with LocalStack(config, with_simulator=False, is_patient=True) as stack:
        yield stack


@pytest.fixture
def shared_stack(kafka_and_registry, tmp_path) -> Iterator[SharedStack]:
    """The shared broker and registry, with a simulator, a prefix and a folder of the test's own."""
    with open_shared_stack(kafka_and_registry, tmp_path) as opened:
        yield opened

"""How every kind of chaos opens: a stack of its own, below the run's folder, with one simulator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests.chaos.report import Report
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.parts.stack import LocalStack

_STREAM_PARTITIONS = 8
_EQUAL_TIMESTAMPS = 0.2
"""How likely transactions on disjoint rows are to share a commit timestamp."""


class Run(Protocol):
    """One run over a started stack."""

    def run(self) -> Report:
        """Run to the end."""
        ...

    def abandon(self) -> None:
        """Stop everything that still runs; called also after `run`."""
        ...


def run_on_a_stack(
    make: Callable[[LocalStack], Run],
    *,
    seed: int,
    folder: Path,
    view: RunView,
    has_login: bool = False,
) -> Report:
    """Start a stack, run what is made over it, and return the report, right or wrong.

    Raises LocalStackError when a part fails or the run cannot go on; everything is stopped either
    way.
    """
    with ExitStack() as cleanup:
        view.stage("starting Kafka, schema registry and the Spanner simulator")
        config = load_config(
            data_dir=folder / "stack",
            seed=seed,
            stream_partitions=_STREAM_PARTITIONS,
            equal_timestamps=_EQUAL_TIMESTAMPS,
        )
        stack = cleanup.enter_context(LocalStack(config, report=view.detail, has_login=has_login))
        run = make(stack)
        cleanup.callback(run.abandon)
        return run.run()

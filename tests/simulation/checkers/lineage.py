"""P2: a child is read only after the completion markers of all its parents are committed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.topics import ROOT_TOKEN

_FIRST_OF_RUN = re.compile(r"tidegate-backfill/table/[0-9]+/0/wait/")
"""As `docs/protocol.md`, 7.18, has it."""


def check(history: History) -> Iterator[Violation]:
    finished = {finish.token: finish.at for finish in reversed(history.finishes)}
    for query in history.queries:
        fact = history.lineage.get(query.token)
        if query.token == ROOT_TOKEN or fact is None:
            continue
        if query.start_us < max(fact.start_us, history.start_us):
            yield Violation("a query begins before its stream partition", query.token)
        if history.has_key_moves or _is_announced_by_one_that_goes_on(query.token):
            continue  # its order is that of its keys: see `key_order`
        for parent in _parents(history, query.token):
            if finished.get(parent, query.at) >= query.at:
                text = f"{query.worker} reads it before its parent {parent} is finished"
                yield Violation(text, query.token)


def _is_announced_by_one_that_goes_on(token: str) -> bool:
    """Whether a stream partition is the first of a run that reads a table in chunks."""
    return _FIRST_OF_RUN.match(token) is not None


def _parents(history: History, token: str) -> tuple[str, ...]:
    """Return the parents that the stream has to read: those that ended before it do not count."""
    return tuple(
        parent
        for parent in history.lineage[token].parents
        if (history.lineage[parent].end_us or 0) > history.start_us
    )

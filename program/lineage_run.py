"""The OpenLineage events of a run: one at its start, one a minute at most, one at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

_INTERVAL_US = 60_000_000
_BUCKETS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, a topic or a folder, by OpenLineage's naming; `fields` are names and types.

    `rows_of` is what its rows are counted by; empty: they are not counted.
    """

    namespace: str
    name: str
    fields: tuple[tuple[str, str], ...] = ()
    rows_of: str = ""


Datasets: TypeAlias = tuple[tuple[Dataset, ...], tuple[Dataset, ...]]
"""What a run reads, and what it writes."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event; `rows` are those since the run's start, and times are in microseconds."""

    kind: Literal["START", "RUNNING", "COMPLETE", "FAIL"]
    at_us: int
    datasets: Datasets = ((), ())
    rows: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    error: str = ""


class RunReport:
    """The events of one run: it decides when there is one, and knows no clock."""

    def __init__(self) -> None:
        """Start with nothing reported."""
        self._inputs: dict[tuple[str, str], Dataset] = {}
        self._outputs: dict[tuple[str, str], Dataset] = {}
        self._rows: Counter[str] = Counter()
        self._watermark_us: int | None = None
        self._schemas: set[Hashable] = set()
        self._sent_at_us: int | None = None

    @property
    def has_begun(self) -> bool:
        """Whether there was a START."""
        return self._sent_at_us is not None

    def start(self, now_us: int) -> RunEvent:
        """Return the first event."""
        return self._event("START", now_us)

    def progress(
        self,
        now_us: int,
        *,
        rows: Mapping[str, int],
        watermark_us: int | None,
        schemas: Collection[Hashable],
        datasets: Callable[[], Datasets],
    ) -> RunEvent | None:
        """Take rows that came since the last call; return an event if one is due.

        One is due a minute after the last one, and at once for one of `schemas` that is new.
        `datasets` is asked only then; those of earlier events stay.
        """
        self._rows.update(rows)
        self._watermark_us = watermark_us
        is_due = self._sent_at_us is None or now_us >= self._sent_at_us + _INTERVAL_US
        if not is_due and self._schemas.issuperset(schemas):
            return None
        for known, now in zip((self._inputs, self._outputs), datasets(), strict=True):
            known.update({(one.namespace, one.name): one for one in now})
        self._schemas.update(schemas)
        return self._event("RUNNING", now_us)

    def end(self, now_us: int, *, error: str = "") -> RunEvent:
        """Return the last event; `error` is the class of what made the run fail."""
        return self._event("FAIL" if error else "COMPLETE", now_us, error)

    def _event(
        self, kind: Literal["START", "RUNNING", "COMPLETE", "FAIL"], now_us: int, error: str = ""
    ) -> RunEvent:
        self._sent_at_us = now_us
        datasets = tuple(self._inputs.values()), tuple(self._outputs.values())
        return RunEvent(kind, now_us, datasets, dict(self._rows), self._watermark_us, error)


def kafka_namespace(bootstrap_servers: str) -> str:
    """Return the namespace of a broker's topics: the first of its addresses."""
    return f"kafka://{bootstrap_servers.partition(',')[0].strip()}"


def place_of(uri: str) -> tuple[str, str]:
    """Return namespace and name of a folder, given as a path or a URI."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    if parts.scheme in _BUCKETS:
        # Without a login, which older settings may have.
        bucket = parts.netloc.rpartition("@")[2]
        return f"{_BUCKETS[parts.scheme]}://{bucket}", parts.path.strip("/")
    return f"{parts.scheme}://{parts.netloc}", parts.path

"""The stream partitions of a backfill that was asked for while the stream runs, and their tokens.

One run reads one table, in chunks.  Its stream partitions follow each other, three for each chunk:

    a stream partition of the change stream ─► wait 0     at the time that the request names
    wait k                                  ─► chunk k    at a time T of its own
    chunk k                                 ─► wait k+1   or nothing, at the table's end
    wait k+1, which measures                ─► wait k+1   which knows for how long chunk k has held

`wait` publishes nothing and holds no watermark: it reports the present time until the next chunk is
due, for as long as an operator has stopped the run.  The first one behind a chunk begins when the
chunk's marker is committed: it measures for how long the watermark was held, and ends at once, so
that what it has measured is in the lineage for every worker.  `chunk` publishes the rows that
follow a key as they are at T, so the fleet's watermark stays below T until these rows are
published, and no longer.  Everything that a worker needs is in the token.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.producer.backfill.read_partition import PREFIX, Key
from tidegate.schemas.errors import SchemaError

_TOKEN = re.compile(rf"{PREFIX}table/([0-9]+)/([0-9]+)/(wait|chunk)/([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """How far a run is when one of its stream partitions begins."""

    run: int
    """Names it among all runs of the stream."""
    table: str
    number: int = 0
    """The chunk's number, from 0."""
    after: Key | None = None
    """The last key that was read; None at the table's beginning."""
    due_ns: int = 0
    """For a `wait`: the pause before the next chunk begins here."""
    refusals: int = 0
    """How many chunks in a row Spanner has refused to read."""
    read_ns: int = 0
    """For a `chunk`: the time T of its rows."""
    rows: int = 0
    """For a `chunk`: how many it has, unless the table ends before."""
    where: str = ""
    """The condition, in SQL, that rows have to meet; empty: all rows are read."""
    failure: str = ""
    """For a `wait`: why the run ends here, before the table's end."""
    held_ns: int = 0
    """For a `wait`: how long the watermark was held for the chunk before; the pause follows."""
    since_ns: int = 0
    """For a `wait` that is to measure it: since when the watermark has been held."""
    is_boosted: bool = False
    """Whether rows are read by Spanner's Data Boost."""

    @property
    def is_chunk(self) -> bool:
        """Whether rows are read here."""
        return self.read_ns > 0

    def chunk(self, read_ns: int, *, rows: int) -> RunPlace:
        """Return the chunk that follows a `wait`."""
        return replace(self, read_ns=read_ns, rows=rows, due_ns=0, held_ns=0, since_ns=0)

    def next(self, after: Key | None) -> RunPlace:
        """Return the `wait` that follows a chunk whose last key this is; it is to measure."""
        return self._wait(after=after, refusals=0, since_ns=self.read_ns)

    def measured(self, now_ns: int) -> RunPlace:
        """Return the `wait` that follows one which has measured until now.

        Its pause begins now; after a chunk that was refused, once that one's own pause is over.
        """
        held_ns = max(0, now_ns - self.since_ns)
        return replace(self, due_ns=max(self.due_ns, now_ns), held_ns=held_ns, since_ns=0)

    def again(self, *, due_ns: int) -> RunPlace:
        """Return the `wait` that follows a chunk which could not be read to its end."""
        return self._wait(due_ns=due_ns, refusals=self.refusals + 1, since_ns=self.read_ns)

    def failed(self, cause: str) -> RunPlace:
        """Return the `wait` that follows a chunk which can never be read; the run ends there."""
        return self._wait(failure=cause)

    def _wait(self, **changed: Any) -> RunPlace:
        """Return the `wait` behind this chunk, with all that holds for the whole run."""
        return replace(self, number=self.number + 1, read_ns=0, rows=0, **changed)


def wait_token(place: RunPlace) -> str:
    """Return the token of a `wait`."""
    content = [place.table, place.after, place.refusals, place.due_ns, *_further(place)]
    return _token("wait", place, content)


def chunk_token(place: RunPlace) -> str:
    """Return the token of a `chunk`."""
    content = [place.table, place.after, place.refusals, place.read_ns, place.rows]
    return _token("chunk", place, [*content, *_further(place)])


def _further(place: RunPlace) -> list[dict[str, str | int]]:
    """Return what most tokens do not have: nothing, so that they stay short."""
    known: dict[str, str | int] = {
        "where": place.where, "failure": place.failure,
        "held": place.held_ns, "since": place.since_ns, "boost": int(place.is_boosted),
    }  # fmt: skip
    found = {name: value for name, value in known.items() if value}
    return [found] if found else []


def _token(kind: str, place: RunPlace, content: Sequence[object]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    coded = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{PREFIX}table/{place.run}/{place.number}/{kind}/{coded}"


def place_of(token: str) -> RunPlace | None:
    """Return what the token of a run says; None for any other token.

    Raises SchemaError for a damaged one.
    """
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    run, number, kind, coded = found.groups()
    try:
        text = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
        table, after, refusals, at_ns, *rest = json.loads(text)
    except (ValueError, binascii.Error) as error:
        raise SchemaError(
            "the token of a backfill cannot be read", token=token, cause=str(error)
        ) from error
    key = None if after is None else tuple(after)
    further = rest.pop() if rest and isinstance(rest[-1], dict) else {}
    place = RunPlace(
        int(run), table, int(number), key, at_ns, refusals,
        where=further.get("where", ""), failure=further.get("failure", ""),
        held_ns=further.get("held", 0), since_ns=further.get("since", 0),
        is_boosted=bool(further.get("boost", 0)),
    )  # fmt: skip
    return place if kind == "wait" else place.chunk(at_ns, rows=rest[0])

"""The stream partitions of a backfill that was asked for while the stream runs, and their tokens.

One run reads one table, in chunks.  Its stream partitions follow each other, two for each chunk:

    a stream partition of the change stream ─► wait 0     at the time that the request names
    wait k                                  ─► chunk k    at a time T of its own
    chunk k                                 ─► wait k+1   or nothing, at the table's end

`wait` publishes nothing and holds no watermark: it reports the present time until the next chunk is
due, for as long as an operator has stopped the run.  `chunk` publishes the rows that follow a key
as they are at T, so the fleet's watermark stays below T until these rows are published, and no
longer.  Everything that a worker needs is in the token.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidegate.producer.backfill.read_partition import PREFIX
from tidegate.schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.producer.backfill.read_partition import Key

__all__ = ["RunPlace", "chunk_token", "place_of", "wait_token"]

_TOKEN = re.compile(rf"{PREFIX}table/([0-9]+)/([0-9]+)/(wait|chunk)/([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """How far a run is when one of its stream partitions begins."""

    run: int
    """Names it among all runs of the stream."""
    table: str
    number: int = 0
    """Of the chunk, from 0."""
    after: Key | None = None
    """The last key that was read; None at the table's beginning."""
    due_ns: int = 0
    """Of a `wait`: the chunk is not read before."""
    refusals: int = 0
    """How many chunks in a row Spanner has refused to read."""
    read_ns: int = 0
    """Of a `chunk`: the time T of its rows."""
    rows: int = 0
    """Of a `chunk`: how many it has, unless the table ends before."""
    where: str = ""
    """The condition, in SQL, that rows have to meet; empty: all rows are read."""
    failure: str = ""
    """Of a `wait`: why the run ends here, before the table's end."""

    @property
    def is_chunk(self) -> bool:
        """Whether rows are read here."""
        return self.read_ns > 0

    def chunk(self, read_ns: int, *, rows: int) -> RunPlace:
        """Return the chunk that follows a `wait`."""
        return replace(self, read_ns=read_ns, rows=rows, due_ns=0)

    def next(self, after: Key | None, *, due_ns: int) -> RunPlace:
        """Return the `wait` that follows a chunk whose last key this is."""
        return self._wait(after=after, due_ns=due_ns, refusals=0)

    def again(self, *, due_ns: int) -> RunPlace:
        """Return the `wait` that follows a chunk which could not be read to its end."""
        return self._wait(due_ns=due_ns, refusals=self.refusals + 1)

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


def _further(place: RunPlace) -> list[dict[str, str]]:
    """Return what most runs do not have: nothing, so that their tokens stay short."""
    known = {"where": place.where, "failure": place.failure}
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
        message = "the token of a backfill cannot be read"
        raise SchemaError(message, token=token, cause=str(error)) from error
    key = None if after is None else tuple(after)
    further = rest.pop() if rest and isinstance(rest[-1], dict) else {}
    place = RunPlace(
        int(run), table, int(number), key, at_ns, refusals,
        where=further.get("where", ""), failure=further.get("failure", ""),
    )  # fmt: skip
    return place if kind == "wait" else place.chunk(at_ns, rows=rest[0])

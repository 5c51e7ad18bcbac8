"""The stream partitions of a backfill requested while the stream runs, and their tokens.

One run reads one table, in chunks.  Its stream partitions form a sequence, three for each chunk:

    a stream partition of the change stream ─► wait 0     at the time that the request names
    wait k                                  ─► chunk k    at a time T
    chunk k                                 ─► wait k+1   or nothing, at the table's end
    wait k+1, which measures                ─► wait k+1   with the time that chunk k has taken

A `wait` publishes nothing and holds no watermark: it reports the present time until the next chunk
is due, as long as an operator has stopped the run.  The first `wait` after a chunk begins when the
chunk's marker is committed: it measures for how long the watermark was held, and ends at once, so
that the result is in the lineage for every worker.  A `chunk` publishes the rows that follow a key
as they are at T, so the fleet's watermark stays below T until these rows are published, and no
longer.  Everything that a worker needs is in the token.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from tidegate.producer.backfill.read_partition import (
    PREFIX,
    Key,
    decoded,
    is_number,
    key_of,
    require,
)
from tidegate.schemas.errors import SchemaError

_TOKEN = re.compile(rf"{PREFIX}table/([0-9]+)/([0-9]+)/(wait|chunk)/([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class _RunPlace:
    """The place in a run at which one of its stream partitions begins."""

    run: int
    """Identifies the run among all runs of the stream."""
    table: str
    number: int = 0
    """The chunk's number, from 0."""
    after: Key | None = None
    """The last key that was read; None at the table's beginning."""
    refusals: int = 0
    """Number of consecutive chunks that Spanner has refused to read."""
    where: str = ""
    """The condition for rows, in SQL; empty: all rows are read."""
    is_boosted: bool = False
    """Whether Spanner's Data Boost reads the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWait(_RunPlace):
    """A stream partition that waits until the next chunk is due, or measures."""

    due_ns: int = 0
    """When the pause before the next chunk begins."""
    failure: str = ""
    """Why the run ends here, before the table's end; otherwise empty."""
    held_ns: int = 0
    """How long the watermark was held for the preceding chunk; the pause follows from it."""
    since_ns: int = 0
    """Since when the watermark has been held; in a `wait` that measures."""

    def chunk(self, read_ns: int, *, rows: int) -> RunChunk:
        """Return the chunk that follows."""
        return RunChunk(
            self.run, self.table, self.number, self.after, self.refusals, self.where,
            self.is_boosted, read_ns=read_ns, rows=rows,
        )  # fmt: skip

    def measured(self, now_ns: int) -> RunWait:
        """Return the `wait` that follows a measuring `wait`, which ends now.

        Its pause begins now; after a refused chunk, once the pause for the refusal is over.
        """
        held_ns = max(0, now_ns - self.since_ns)
        return replace(self, due_ns=max(self.due_ns, now_ns), held_ns=held_ns, since_ns=0)

    @property
    def token(self) -> str:
        """The stream partition's token."""
        further: dict[str, object] = {
            "where": self.where, "failure": self.failure,
            "held": self.held_ns, "since": self.since_ns, "boost": int(self.is_boosted),
        }  # fmt: skip
        return _token("wait", self, [self.due_ns], further)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChunk(_RunPlace):
    """A stream partition that publishes the rows after a key."""

    read_ns: int
    """The time T of its rows."""
    rows: int
    """Number of rows, unless the table ends earlier."""

    def next(self, after: Key | None) -> RunWait:
        """Return the measuring `wait` that follows if this is the last key read."""
        return replace(self._wait(), after=after, refusals=0, since_ns=self.read_ns)

    def again(self, *, due_ns: int) -> RunWait:
        """Return the `wait` that follows if the chunk could not be read to its end."""
        refusals = self.refusals + 1
        return replace(self._wait(), due_ns=due_ns, refusals=refusals, since_ns=self.read_ns)

    def failed(self, cause: str) -> RunWait:
        """Return the `wait` that follows if the chunk can never be read, at which the run ends."""
        return replace(self._wait(), failure=cause)

    def _wait(self) -> RunWait:
        return RunWait(
            self.run, self.table, self.number + 1, self.after, self.refusals, self.where,
            self.is_boosted,
        )  # fmt: skip

    @property
    def token(self) -> str:
        """The stream partition's token."""
        further: dict[str, object] = {"where": self.where, "boost": int(self.is_boosted)}
        return _token("chunk", self, [self.read_ns, self.rows], further)


def _token(kind: str, place: _RunPlace, numbers: list[int], further: dict[str, object]) -> str:
    """Return a token; empty fields of `further` are left out, to keep most tokens short."""
    content: list[Any] = [place.table, place.after, place.refusals, *numbers]
    if rare := {name: value for name, value in further.items() if value}:
        content.append(rare)
    text = json.dumps(content, separators=(",", ":"))
    coded = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{PREFIX}table/{place.run}/{place.number}/{kind}/{coded}"


def place_of(token: str) -> RunWait | RunChunk | None:
    """Parse the token of a stream partition of a run; None for any other token.

    Raises SchemaError for a damaged one.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    run, number, kind, coded = match.groups()
    try:
        table, after, refusals, at_ns, *rest = decoded(coded)
        further = rest.pop() if rest and isinstance(rest[-1], dict) else {}
        # A chunk has its number of rows, a wait nothing.
        rows, *_ = rest if kind == "chunk" else (1,)
        wait = RunWait(
            int(run), table, int(number), key_of(after), refusals,
            where=further.get("where", ""), failure=further.get("failure", ""), due_ns=at_ns,
            held_ns=further.get("held", 0), since_ns=further.get("since", 0),
            is_boosted=bool(further.get("boost", 0)),
        )  # fmt: skip
        for text in (table, wait.where, wait.failure):
            require(isinstance(text, str), text)
        for value in (refusals, at_ns, wait.held_ns, wait.since_ns, rows):
            require(is_number(value), value)
        require(rows > 0, rows)
    except (ValueError, TypeError) as error:
        raise SchemaError(
            "the token of a backfill cannot be read", token=token, cause=str(error)
        ) from error
    return wait if kind == "wait" else wait.chunk(at_ns, rows=rows)

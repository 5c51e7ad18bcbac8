"""Findings of an audit: what completion markers prove of an output, and the contradictions.

The rules are those of `docs/protocol.md`, 6.4.  Cases that cannot be judged are counted by their
reason and are not contradictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from typing import Any

from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.progress import PartitionGap


class Verdict(StrEnum):
    """The verdict of an audit on a stream partition, a transaction or a release."""

    PROVED = "proved"
    MISMATCHED = "mismatched"
    OPEN = "open"
    """The stream partition, or another with the same `origin`, has not finished."""
    NOT_RELEASED = "not_released"
    """It has finished above the watermark."""
    BEGUN_BEFORE = "begun_before"
    """It began when the output was not yet complete (`complete_from_us`)."""
    LEFT_OUT = "left_out"
    """Changes may be absent, or there a second time, on purpose: the change stream leaves some
    out, or changes were parked or put back."""
    IN_GAP = "in_gap"
    """The transaction lacks records, and its commit time lies in an accepted gap."""
    NO_MANIFEST = "no_manifest"
    """The release has rows and no manifest; its rows are numbered and in order."""


class Fault(StrEnum):
    """The kind of a contradiction, in the words of the report."""

    MISSING = "changes are missing"
    TOO_MANY = "too many changes"
    OTHER_CHANGES = "as many changes, but not the same"
    OTHER_VALUES = "the same changes with values of another size"
    NOT_ANNOUNCED = "changes of a stream partition that was never announced"
    ALTERED = "rows that do not agree with their own order keys"
    OTHER_COUNT = "not as many changes as the manifest says"
    NOT_DENSE = "ordinals are not 0, 1, 2, …"
    OUT_OF_ORDER = "changes are not in commit order, or there twice"
    OUT_OF_BOUNDS = "changes outside the bounds of the release"
    NO_TABLE = "the table is missing"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One contradiction; `subject` names it, `expected` and `found` are the compared values."""

    what: str
    """`stream partition`, `transaction`, `release` or `table`."""
    subject: Mapping[str, Any]
    fault: Fault
    expected: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {
            "what": self.what,
            **self.subject,
            "fault": str(self.fault),
            "expected": dict(self.expected),
            "found": dict(self.found),
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of one of an audit's comparisons.

    `counts` is by verdict; `faults` counts all mismatches, of which `mismatches` holds the first.
    """

    counts: Mapping[Verdict, int]
    mismatches: tuple[Mismatch, ...]
    faults: int

    @property
    def content(self) -> dict[str, int]:
        """Return the counts for JSON; `proved` and mismatches are always there."""
        always = dict.fromkeys((Verdict.PROVED, Verdict.MISMATCHED), 0)
        return {str(verdict): number for verdict, number in {**always, **self.counts}.items()}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """An audit of the output up to a release; everything up to `through_us` is released.

    `without_checksum` and `without_value_bytes` count the pairs of an origin and a topic that were
    compared without that figure, because an older program wrote the marker or the rows.
    """

    release: int
    through_us: int
    complete_from_us: int | None
    changes: int
    late_changes: int
    stream_partitions: Findings
    transactions: Findings
    releases: Findings
    tables: Findings
    without_checksum: int = 0
    without_value_bytes: int = 0
    gaps: tuple[PartitionGap, ...] = ()
    """The accepted gaps, which the output lacks for good: changes in them are not judged."""

    @property
    def is_proved(self) -> bool:
        """Whether nothing contradicts the markers and the manifests."""
        return not any(findings.faults for findings in self._all)

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """The first mismatches of each comparison."""
        return tuple(mismatch for findings in self._all for mismatch in findings.mismatches)

    @property
    def mismatches_not_listed(self) -> int:
        """How many mismatches are not among `mismatches`."""
        return sum(findings.faults for findings in self._all) - len(self.mismatches)

    @property
    def figures(self) -> dict[str, Any]:
        """Return everything but the mismatches."""
        return {
            "release": self.release,
            "through_us": self.through_us,
            "complete_from_us": self.complete_from_us,
            "gaps": [asdict(gap) for gap in self.gaps],
            "changes": self.changes,
            "late_changes": self.late_changes,
            "stream_partitions": self.stream_partitions.content,
            "transactions": self.transactions.content,
            "releases": self.releases.content,
            "without_checksum": self.without_checksum,
            "without_value_bytes": self.without_value_bytes,
        }

    @property
    def readable_figures(self) -> dict[str, Any]:
        """Return the figures for people."""
        figures = readable(self.figures)
        if self.complete_from_us is None:
            figures["complete_from"] = "the beginning of the stream"
        return figures

    def content(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "proved": self.is_proved,
            **self.figures,
            "mismatches": [mismatch.content() for mismatch in self.mismatches],
            "mismatches_not_listed": self.mismatches_not_listed,
        }

    def _repr_html_(self) -> str:
        """Return the report as tables in HTML, as IPython asks for it."""
        title = "proved" if self.is_proved else "NOT proved: something contradicts the markers"
        tables = [html_table(("figure", "value"), self.readable_figures.items(), title=title)]
        if self.mismatches:
            rows = (readable(mismatch.content()).items() for mismatch in self.mismatches)
            listed = ((f"{name}: {value}" for name, value in row) for row in rows)
            lines = ((", ".join(line),) for line in listed)
            tables.append(html_table(("mismatch",), lines))
        return "".join(tables)

    @property
    def _all(self) -> tuple[Findings, ...]:
        return self.tables, self.stream_partitions, self.transactions, self.releases


_US = "_us"


def readable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields for people: times in the place of microseconds, `none` in that of nothing."""
    return {
        name.removesuffix(_US): _readable(value, is_time=name.endswith(_US))
        for name, value in fields.items()
    }


def _readable(value: Any, *, is_time: bool = False) -> Any:
    match value:
        case None:
            return "none"
        case int() if is_time:
            return format_rfc3339(value * NS_PER_US) if value >= 0 else "none"
        case dict():
            return readable(value)
        case list():
            return [_readable(item) for item in value]
        case _:
            return value


def html_table(head: Sequence[str], rows: Iterable[Iterable[Any]], *, title: str = "") -> str:
    """Return a table; every text in it is escaped, and what is None is a dash."""
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return (
        f"<table>{caption}<thead>{_row(head, 'th')}</thead>"
        f"<tbody>{''.join(_row(row, 'td') for row in rows)}</tbody></table>"
    )


def _row(cells: Iterable[Any], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        return _lines(value)
    if isinstance(value, list | tuple):
        return "<br>".join(_text(item) for item in value) or "none"
    return escape(str(value))


def _lines(values: Mapping[str, Any]) -> str:
    return (
        "<br>".join(f"{escape(str(key))}: {_text(value)}" for key, value in values.items())
        or "none"
    )

"""The pages of the console, made from the board."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidegate.lineage.fleet_status import FleetStatus, PartitionCondition
from tidegate.producer.cli.console import forms
from tidegate.producer.cli.console.board import Board
from tidegate.producer.cli.console.change_search import SHOWN_MAX, Search
from tidegate.producer.cli.console.charts import BarChart, bar_chart, line_chart
from tidegate.producer.cli.console.history import KEPT_US
from tidegate.producer.cli.console.lineage_picture import lineage_picture
from tidegate.producer.cli.console.releases import Release
from tidegate.producer.cli.dead_letters import DeadLetterReport
from tidegate.producer.cli.fleet_summary import newest_faults, stopping_errors, worker_shares
from tidegate.producer.cli.lineage import short
from tidegate.producer.cli.status import StreamStatus, lag_s
from tidegate.producer.cli.stream_states import HINTS
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import US_PER_SECOND

_ROWS = 50
_RELEASES = 30
_PARKED_KEPT_S = 30.0
_MINUTES = {"5": "5 min", "30": "30 min", "60": "1 h", "360": "6 h", "1440": "1 d", "0": "all"}
_HOURS = {"1": "1 h", "6": "6 h", "24": "1 d", "168": "7 d"}
_SLOTS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})?)?")
_LAGS_S = (1, 2, 5, 10, 30, 60, 300, 1_800)


class Pages:
    """Writes each page as HTML; any thread may ask for one."""

    def __init__(
        self,
        board: Board,
        *,
        refresh_s: float,
        search: Callable[[str, str, float], Search],
        parked: Callable[[], DeadLetterReport],
    ) -> None:
        """Take the figures, and the functions that read more when a page is opened.

        `search` finds the changes of a key, by table, key and hours; `parked` reads the dead-letter
        topic.  Both may raise TidegateError.
        """
        self._board = board
        self._refresh_s = refresh_s
        self._search = search
        self._parked = _Kept(parked)
        self._environment = Environment(
            loader=PackageLoader("tidegate.producer.cli.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            instant=forms.instant,
            duration=forms.duration,
            amount=forms.amount,
            short=short,
        )
        self.by_path: Mapping[str, Callable[[Mapping[str, str]], str]] = {
            "/": self.overview,
            "/partitions": self.partitions,
            "/workers": self.workers,
            "/parked": self.parked,
            "/releases": self.releases,
            "/change": self.change,
        }

    def overview(self, _query: Mapping[str, str]) -> str:
        """Return the state of the stream, and its last hour."""
        status = self._board.status
        fleet = None if status is None else status.fleet
        samples = self._board.history.samples
        until_us = samples[-1].at_us if samples else time.time_ns() // 1_000
        from_us = max(until_us - KEPT_US, samples[0].at_us) if samples else until_us - KEPT_US
        lines = [
            (title, line_chart(points, from_us=from_us, until_us=until_us, unit=unit), unit)
            for title, unit, points in (
                ("Watermark lag", "s", [(one.at_us, one.lag_s) for one in samples]),
                (
                    "Changes published",
                    "a second",
                    [(one.at_us, one.changes_a_second) for one in samples],
                ),
            )
        ]
        return self._page(
            "overview.html",
            lines=lines,
            counts={} if fleet is None else _counts(fleet),
            headroom_s=None if status is None else _headroom_s(status),
            hint="" if status is None else HINTS[status.state],
            errors=[] if fleet is None else stopping_errors(fleet.partitions),
            newest=_newest(self._board),
            audit=self._board.audit,
            has_output=self._board.reader is not None,
        )

    def partitions(self, query: Mapping[str, str]) -> str:
        """Return the picture of the lineage, and the slowest stream partitions."""
        board, now_us = self._board, time.time_ns() // 1_000
        minutes = query.get("minutes", "60")
        minutes = minutes if minutes in _MINUTES else "60"
        first_us = min((life.start_us for life in board.lives), default=now_us)
        from_us = now_us - int(minutes) * 60 * US_PER_SECOND if minutes != "0" else first_us
        slots = _slots(query.get("slots", ""))
        fleet = None if board.status is None else board.status.fleet
        listed = [
            entry
            for entry in (() if fleet is None else fleet.partitions)
            if slots is None or slots[0] <= entry.slot <= slots[1]
        ]
        picture = lineage_picture(
            board.lives, from_us=max(from_us, first_us), now_us=now_us, slots=slots
        )
        return self._page(
            "partitions.html",
            picture=picture,
            listed=listed[:_ROWS],
            kinds={life.token: life.kind for life in board.lives if life.end_us is None},
            listed_more=max(len(listed) - _ROWS, 0),
            minutes=minutes,
            choices=_MINUTES,
            slots="" if slots is None else f"{slots[0]}-{slots[1]}",
            now_us=now_us,
        )

    def workers(self, _query: Mapping[str, str]) -> str:
        """Return the workers with their slots, and what they retry."""
        status = self._board.status
        asked = () if status is None else status.workers
        faults = newest_faults(asked)
        fleet = None if status is None else status.fleet
        return self._page(
            "workers.html",
            shares=worker_shares(status, fleet) if status and fleet else [],
            asked=asked,
            faults=faults[:_ROWS],
            faults_more=max(len(faults) - _ROWS, 0),
        )

    def parked(self, _query: Mapping[str, str]) -> str:
        """Return what is in the dead-letter topic, by reason and by table."""
        report, fault = self._parked.get()
        return self._page("parked.html", report=report, parked_fault=fault, rows=_ROWS)

    def releases(self, _query: Mapping[str, str]) -> str:
        """Return the newest releases, their delays, and each table's last one."""
        reader, consumer = self._board.reader, self._board.consumer
        releases = () if reader is None else reader.releases
        delays = None if consumer is None else bar_chart(consumer.delays)
        return self._page(
            "releases.html",
            has_output=reader is not None,
            releases=tuple(reversed(releases[-_RELEASES:])),
            count=len(releases),
            sizes=_sizes(releases),
            delays=delays or _lags(releases),
            has_delays=delays is not None,
            sinks=() if consumer is None else consumer.sinks,
            tables=_tables(releases),
            audit=self._board.audit,
        )

    def change(self, query: Mapping[str, str]) -> str:
        """Return a form, and the changes of the key that was entered in it."""
        table, key = query.get("table", "").strip(), query.get("key", "").strip()
        hours = query.get("hours", "24")
        hours = hours if hours in _HOURS else "24"
        found, fault, rows = None, "", []
        if table and key:
            try:
                found = self._search(table, key, float(hours))
                rows = [(change, self._release_of(change.commit_us)) for change in found.changes]
            except TidegateError as error:
                fault = str(error)
        return self._page(
            "change.html",
            table=table,
            key=key,
            hours=hours,
            choices=_HOURS,
            found=found,
            rows=rows,
            search_fault=fault,
            shown_max=SHOWN_MAX,
        )

    def sign_in(self, *, is_wrong: bool) -> str:
        """Return the form that asks for the token."""
        template = self._environment.get_template("sign_in.html")
        return template.render(is_wrong=is_wrong)

    def _release_of(self, commit_us: int) -> Release | None:
        reader = self._board.reader
        return None if reader is None else reader.containing(commit_us)

    def _page(self, name: str, **shown: Any) -> str:
        board = self._board
        return self._environment.get_template(name).render(
            status=board.status,
            fleet=None if board.status is None else board.status.fleet,
            fault=board.fault,
            output_fault=board.output_fault,
            looked_us=board.looked_us,
            refresh_ms=round(self._refresh_s * 1_000),
            page=name,
            lag_s=lag_s,
            **shown,
        )


class _Kept:
    """A report that is kept for a while; threads that ask while it is made wait for it."""

    def __init__(self, make: Callable[[], DeadLetterReport]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: DeadLetterReport | None = None
        self._fault = ""
        self._until = 0.0

    def get(self) -> tuple[DeadLetterReport | None, str]:
        """Return the report, or None and the reason."""
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    self._kept, self._fault = self._make(), ""
                except TidegateError as error:
                    self._kept, self._fault = None, str(error)
                self._until = time.monotonic() + _PARKED_KEPT_S
            return self._kept, self._fault


def _slots(text: str) -> tuple[int, int] | None:
    """Return the slots that a link names, as `3` or `0-15`; None for any other text."""
    match = _SLOTS.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2] or match[1]))


def _counts(fleet: FleetStatus) -> dict[str, int]:
    counts = Counter(entry.condition for entry in fleet.partitions)
    shown = (PartitionCondition.OPEN, PartitionCondition.WAITING, PartitionCondition.STOPPED)
    parked = sum(entry.parked for entry in fleet.partitions)
    return {**{str(one): counts[one] for one in shown}, "changes set aside": parked}


def _headroom_s(status: StreamStatus) -> float | None:
    """Return the seconds until unpublished changes expire, from the workers' metrics."""
    left = [worker.retention_headroom_s for worker in status.workers]
    return min((seconds for seconds in left if seconds is not None), default=None)


def _newest(board: Board) -> Release | None:
    releases = () if board.reader is None else board.reader.releases
    return releases[-1] if releases else None


def _sizes(releases: Sequence[Release]) -> BarChart:
    return bar_chart([(str(one.number), one.rows) for one in releases[-_RELEASES:]])


def _lags(releases: Sequence[Release]) -> BarChart:
    """Return how many releases were published within which time after their newest change."""
    counts = [0] * (len(_LAGS_S) + 1)
    for release in releases:
        counts[next((n for n, s in enumerate(_LAGS_S) if release.lag_s <= s), len(_LAGS_S))] += 1
    labels = [*(forms.duration(seconds) for seconds in _LAGS_S), "more"]
    return bar_chart(list(zip(labels, counts, strict=True)))


def _tables(releases: Sequence[Release]) -> list[tuple[str, str, str, Any, int]]:
    """Return (table, sink, path, version, release) of the newest release."""
    if not releases:
        return []
    newest = releases[-1]
    return [
        (
            table,
            sink,
            entry.get("path", ""),
            entry.get("version"),
            entry.get("release", newest.number),
        )
        for table, sinks in sorted(newest.tables.items())
        for sink, entry in sorted(sinks.items())
    ]

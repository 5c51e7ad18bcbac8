"""Maintenance of an output's tables: small files are rewritten, old ones are deleted.

It runs at the end of a batch, in the batch's own thread, when everything of the batch is stored: no
release is written at that time, and a kill leaves the tables unchanged.  The work of one batch is
bounded.  A failure never ends the run: the table is left unchanged until later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.program.extras import is_installed
from tidegate.spark_consumer.checkpoint.store_access import StoreAccess
from tidegate.spark_consumer.core.compaction import CompactionBudget, CompactionLimits, choose_run
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace, OnlySpark, find_place
from tidegate.spark_consumer.sinks.manifest import KeptVersions, ManifestWriter, VacuumedVersions
from tidegate.spark_consumer.sinks.port import Sink, TableSink

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.files import DirectFiles


_FILES_PER_BATCH = 200
_LOOKS_PER_BATCH = 10
"""Tables whose logs are read in one batch."""

_ORDER = dict.fromkeys(("changelog", "incomplete", "history_incomplete"), ("release", "ordinal"))
"""Folders whose tables are in commit order, by these columns."""

_MARGIN = timedelta(hours=1)
"""A file is marked as removed when its commit begins, which may last."""

_log = structlog.get_logger(__name__)


class VacuumPolicy:
    """When files that no version needs any more are deleted; hours of 0: never."""

    def __init__(self, *, retention_hours: int, interval_ms: int) -> None:
        """Take how long versions stay readable, and the time between two deletions."""
        self.retention_hours = retention_hours
        self.interval = timedelta(milliseconds=interval_ms)


def find_maintenance(
    output: str,
    sinks: Sequence[Sink],
    *,
    manifests: ManifestWriter,
    limits: CompactionLimits,
    vacuum: VacuumPolicy,
    require_writer: Callable[[], None],
    access: StoreAccess | None = None,
) -> TableMaintenance | None:
    """Return the maintenance of these sinks' tables, or None; logs once why there is none.

    `output` and `access` are as for `find_direct_way`.  `require_writer` raises if another run has
    taken the checkpoint.
    """
    tables = [sink for sink in sinks if isinstance(sink, TableSink)]
    if not tables or (not limits.files_min and not vacuum.retention_hours):
        return None
    missing = [name for name in ("deltalake", "pyarrow") if not is_installed(name)]
    if missing:
        _log.info("tables are not compacted", reason=f"not installed: {', '.join(missing)}")
        return None
    try:
        place = find_place(output, access)
    except OnlySpark as only_spark:
        _log.info("tables are not compacted", reason=str(only_spark))
        return None
    return TableMaintenance(
        place,
        tables,
        manifests=manifests,
        limits=limits,
        vacuum=vacuum,
        require_writer=require_writer,
    )


class TableMaintenance:
    """Compacts and vacuums the tables of some sinks; call it at the end of each batch."""

    def __init__(
        self,
        place: DirectPlace,
        sinks: Sequence[TableSink],
        *,
        manifests: ManifestWriter,
        limits: CompactionLimits,
        vacuum: VacuumPolicy,
        require_writer: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Do nothing before the first call; arguments are as for `find_maintenance`."""
        self._place = place
        self._sinks = sinks
        self._limits = limits
        self._vacuum = vacuum
        self._require_writer = require_writer
        self._now = now
        self._vacuumed = VacuumedVersions(manifests)
        self._looked_at: dict[str, int] = {}
        """The version at which a table had nothing to compact."""
        self._waiting: list[str] = []
        """Tables that have not been vacuumed in this round."""

    def __call__(self) -> None:
        """Do one batch's share; raises WriterReplaced only."""
        heads = {path: head for sink in self._sinks for path, head in sink.heads().items()}
        if self._limits.files_min:
            self._compact(heads)
        if self._vacuum.retention_hours:
            self._vacuum_next(heads)

    def _compact(self, heads: Mapping[str, int]) -> None:
        """Rewrite small files of the tables that have got the most commits since the last look."""
        news = {path: head - self._looked_at.get(path, -1) for path, head in heads.items()}
        due = sorted(
            (path for path, commits in news.items() if commits >= self._limits.files_min),
            key=lambda path: (-news[path], path),
        )
        budget = CompactionBudget(files=_FILES_PER_BATCH, bytes=self._limits.target_bytes)
        for path in due[:_LOOKS_PER_BATCH]:
            if self._guarded(path, partial(self._compact_table, path, budget)):
                self._looked_at[path] = heads[path]

    def _compact_table(self, path: str, budget: CompactionBudget) -> bool:
        """Rewrite runs of a table within the budget; return whether all are done."""
        order = _ORDER.get(path.partition("/")[0], ())
        while True:
            table = self._opened(path)
            if not table.is_plain:
                return True
            files = table.data_files(order)
            run = choose_run(files, self._limits, budget)
            if not run:
                # With a whole budget there would be one?
                whole = CompactionBudget(_FILES_PER_BATCH, self._limits.target_bytes)
                return not choose_run(files, self._limits, whole)
            budget.take(run)
            rows = table.rewrite(
                run,
                order=order,
                now_ms=round(self._now().timestamp() * 1_000),
                before_commit=self._require_writer,
            )
            _log.debug("files compacted", table=path, files=len(run), rows=rows)

    def _vacuum_next(self, heads: Mapping[str, int]) -> None:
        """Vacuum one table, where a round of all tables is due or not finished."""
        now = self._now()
        if not self._waiting and heads:
            self._guarded("all", lambda: self._begin_round(heads, now))
        if self._waiting:
            path = self._waiting.pop(0)
            self._guarded(path, lambda: self._vacuum_table(path, now))

    def _begin_round(self, heads: Mapping[str, int], now: datetime) -> bool:
        last = self._vacuumed.last_round()
        if last is None or now - last >= self._vacuum.interval:
            self._vacuumed.note_round(now)
            self._waiting = sorted(heads)
        return True

    def _vacuum_table(self, path: str, now: datetime) -> bool:
        hours = self._vacuum.retention_hours
        table = self._opened(path)
        oldest = table.load_version_at(now - timedelta(hours=hours) + _MARGIN)
        # First: a reader must not look for files that are being deleted.
        self._require_writer()
        self._vacuumed.note_table(path, KeptVersions(oldest, table.same_since()))
        deleted = self._opened(path).vacuum(retention_hours=hours)
        _log.info("files deleted", table=path, files=deleted, kept_from_version=oldest)
        return True

    def _opened(self, path: str) -> DirectFiles:
        from tidegate.spark_consumer.sinks.delta.direct.files import (  # noqa: PLC0415 - optional
            DirectFiles,
        )

        place = self._place
        return DirectFiles(f"{place.address}/{path}", options=place.options())

    def _guarded(self, path: str, work: Callable[[], bool]) -> bool:
        """Return the result of the work, True if it fails: it is tried again later."""
        try:
            return work()
        except WriterReplaced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client, the files or the disk say
            _log.warning("table not maintained", table=path, cause=_cause(error))
            return True


def _cause(error: Any) -> str:
    return f"{type(error).__name__}: {error}"

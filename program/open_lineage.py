"""OpenLineage events of a run: one at its start, at most one a minute, one at its end.

openlineage-python's own configuration decides where events go.  A thread sends them: a backend that
fails or hangs neither stops nor slows the run; only events are lost.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import structlog

from tidegate.program.extras import Extra
from tidegate.program.settings_stream import StreamSettings
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.version import __version__

_INTERVAL_US = 60_000_000
_BUCKETS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, a topic or a folder, by OpenLineage's naming; `fields` are names and types.

    `rows_of` is the key under which its rows are counted; empty: they are not counted.
    """

    namespace: str
    name: str
    fields: tuple[tuple[str, str], ...] = ()
    rows_of: str = ""


Datasets: TypeAlias = tuple[tuple[Dataset, ...], tuple[Dataset, ...]]
"""The inputs and the outputs of a run."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event; `rows` are counted since the run's start, and times are in microseconds."""

    kind: Literal["START", "RUNNING", "COMPLETE", "FAIL"]
    at_us: int
    datasets: Datasets = ((), ())
    rows: Mapping[str, int] = field(default_factory=dict)
    watermark_us: int | None = None
    error: str = ""


class RunReport:
    """The events of one run: decides when an event is due; has no clock."""

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
        """Whether START was reported."""
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
        """Add the rows since the last call; return an event if one is due.

        An event is due a minute after the last one, and at once for a new entry of `schemas`.
        `datasets` is called only then; datasets of earlier events stay.
        """
        self._rows.update(rows)
        self._watermark_us = watermark_us
        is_due = self._sent_at_us is None or now_us >= self._sent_at_us + _INTERVAL_US
        if not is_due and self._schemas.issuperset(schemas):
            return None
        for former, current in zip((self._inputs, self._outputs), datasets(), strict=True):
            former.update({(dataset.namespace, dataset.name): dataset for dataset in current})
        self._schemas.update(schemas)
        return self._event("RUNNING", now_us)

    def end(self, now_us: int, *, error: str = "") -> RunEvent:
        """Return the last event; `error` is the class of the error that ended the run, if any."""
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


_QUEUED_MAX = 16
_CLOSE_S = 5.0
_LOG_INTERVAL_S = 60.0
_PRODUCER = f"urn:tidegate:{__version__}"
_HINT = "See docs/how-to/openlineage.md"

_log = structlog.get_logger()


class LineageSender:
    """Passes events to `emit` in a thread; the oldest are dropped while more than a few wait."""

    def __init__(self, emit: Callable[[RunEvent], None], *, close_s: float = _CLOSE_S) -> None:
        """Start the thread; `close` waits for it for at most `close_s` seconds."""
        self._emit = emit
        self._close_s = close_s
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(_QUEUED_MAX)
        self._warned_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent | None) -> None:
        """Queue an event; never blocks."""
        while True:
            try:
                self._waiting.put_nowait(event)
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                except queue.Empty:  # the thread was faster
                    continue
            else:
                return

    def close(self) -> None:
        """Wait until the queued events are sent, for a few seconds at most."""
        self.send(None)
        self._thread.join(self._close_s)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._emit(event)
            except Exception as error:  # noqa: BLE001 - whatever a transport raises
                now_s = time.monotonic()
                if now_s >= self._warned_at + _LOG_INTERVAL_S:
                    self._warned_at = now_s
                    # The text may hold an address with a key in it.
                    _log.warning("lineage event not sent", error=type(error).__name__)


class RunLineage:
    """The events of one run of a program; one thread at a time may call it, and no call raises."""

    def __init__(
        self, sender: LineageSender, *, clock_us: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        """Report no events before `begin`."""
        self._sender = sender
        self._clock_us = clock_us
        self._report = RunReport()

    def begin(self) -> None:
        """Send START at the first call."""
        if not self._report.has_begun:
            self._sender.send(self._report.start(self._clock_us()))

    def follow(
        self,
        *,
        rows: Mapping[str, int],
        watermark_us: int | None,
        schemas: Collection[Hashable],
        datasets: Callable[[], Datasets],
    ) -> None:
        """Record progress, as `RunReport.progress` does, and send an event if one is due."""
        try:
            event = self._report.progress(
                self._clock_us(),
                rows=rows,
                watermark_us=watermark_us,
                schemas=schemas,
                datasets=datasets,
            )
        except Exception as error:  # noqa: BLE001 - such as a manifest that cannot be read now
            _log.warning("lineage not reported", error=type(error).__name__)
            return
        if event is not None:
            self._sender.send(event)

    def end(self, *, error: str = "") -> None:
        """Send the last event, if START was sent."""
        if self._report.has_begun:
            self._sender.send(self._report.end(self._clock_us(), error=error))


@contextmanager
def reported(settings: StreamSettings, *, program: str) -> Iterator[RunLineage | None]:
    """Yield the sender of events, None if the settings do not ask for it; then end the run.

    Raises ConfigError if openlineage-python or its configuration is missing.
    """
    if not settings.openlineage:
        yield None
        return
    Extra("lineage", ("openlineage.client",)).require()
    emit = _emitter(job=f"{program}.{settings.prefix}")
    sender = LineageSender(emit)
    lineage = RunLineage(sender)
    try:
        yield lineage
    except BaseException as error:
        lineage.end(error=type(error).__name__)
        raise
    else:
        lineage.end()
    finally:
        sender.close()


def _emitter(*, job: str) -> Callable[[RunEvent], None]:
    """Return a function that sends an event of one run by OpenLineage's client."""
    from openlineage.client.uuid import generate_new_uuid  # noqa: PLC0415 - an extra, as below

    client = _client()
    run_id = str(generate_new_uuid())
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    return lambda event: client.emit(_built(event, run_id=run_id, namespace=namespace, job=job))


def _client() -> Any:
    from openlineage.client import OpenLineageClient  # noqa: PLC0415
    from openlineage.client.event_v2 import set_producer  # noqa: PLC0415

    set_producer(_PRODUCER)
    # Without handlers of its own, its lines would be in the program's log.
    logging.getLogger("openlineage").addHandler(logging.NullHandler())
    try:
        client = OpenLineageClient()
        is_chosen = bool((client.config.transport or {}).get("type"))
    except Exception as error:  # noqa: BLE001 - whatever its parts raise
        # Its text may quote the file, and a key with it.
        raise ConfigError(
            "openlineage: the configuration of openlineage-python cannot be used",
            hint=_HINT,
            cause=type(error).__name__,
        ) from None
    if client.transport.kind == "console" and not is_chosen:
        raise ConfigError(
            "openlineage: no transport is configured",
            hint=f"Set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to the client's file. {_HINT}",
        )
    return client


def _built(event: RunEvent, *, run_id: str, namespace: str, job: str) -> Any:
    """Return an event as an object of OpenLineage's client."""
    from openlineage.client import event_v2 as v2  # noqa: PLC0415
    from openlineage.client.facet_v2 import (  # noqa: PLC0415
        error_message_run,
        job_type_job,
        processing_engine_run,
    )

    engine = processing_engine_run.ProcessingEngineRunFacet(version=__version__, name="Tidegate")
    facets: dict[str, Any] = {"processing_engine": engine}
    if event.watermark_us is not None:
        facets["tidegate_progress"] = _progress(event.watermark_us)
    if event.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=event.error, programmingLanguage="Python"
        )
    kind = job_type_job.JobTypeJobFacet(processingType="STREAMING", integration="TIDEGATE")
    inputs, outputs = event.datasets
    return v2.RunEvent(
        eventType=v2.RunState[event.kind],
        eventTime=format_rfc3339(event.at_us * NS_PER_US),
        run=v2.Run(runId=run_id, facets=facets),
        job=v2.Job(namespace=namespace, name=job, facets={"jobType": kind}),
        producer=_PRODUCER,
        inputs=[
            v2.InputDataset(dataset.namespace, dataset.name, facets=_schema(dataset))
            for dataset in inputs
        ],
        outputs=[_output(dataset, event.rows) for dataset in outputs],
    )


def _progress(watermark_us: int) -> Any:
    """Return Tidegate's facet: the commit time up to which the run has written everything."""
    from openlineage.client.generated.base import RunFacet  # noqa: PLC0415

    return RunFacet().with_additional_properties(watermark=format_rfc3339(watermark_us * NS_PER_US))


def _schema(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset as schema  # noqa: PLC0415

    if not dataset.fields:
        return {}
    fields = [
        schema.SchemaDatasetFacetFields(name=name, type=kind, ordinal_position=place)
        for place, (name, kind) in enumerate(dataset.fields, start=1)
    ]
    return {"schema": schema.SchemaDatasetFacet(fields=fields)}


def _output(dataset: Dataset, rows: Mapping[str, int]) -> Any:
    from openlineage.client.event_v2 import OutputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import (  # noqa: PLC0415
        output_statistics_output_dataset as statistics,
    )

    counted = statistics.OutputStatisticsOutputDatasetFacet(rowCount=rows.get(dataset.rows_of, 0))
    facets: dict[str, Any] = {"outputStatistics": counted} if dataset.rows_of else {}
    return OutputDataset(
        dataset.namespace, dataset.name, facets=_schema(dataset), outputFacets=facets
    )

"""Sends what a run reads and writes to an OpenLineage backend, beside its work.

openlineage-python decides by its own configuration where events go.  They are sent by a thread: a
backend that fails or hangs neither stops nor slows the run, and costs events only.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from tidegate.program.extras import Extra
from tidegate.program.lineage_run import Dataset, Datasets, RunEvent, RunReport
from tidegate.program.settings_stream import StreamSettings
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.version import __version__

_QUEUED_MAX = 16
_CLOSE_S = 5.0
_LOG_INTERVAL_S = 60.0
_PRODUCER = f"urn:tidegate:{__version__}"
_HINT = "See docs/how-to/openlineage.md"

_log = structlog.get_logger()


class LineageSender:
    """Passes events to `emit` in a thread; of more than a few that wait, the oldest are dropped."""

    def __init__(self, emit: Callable[[RunEvent], None], *, close_s: float = _CLOSE_S) -> None:
        """Start the thread; `close` waits for it for so many seconds at most."""
        self._emit = emit
        self._close_s = close_s
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(_QUEUED_MAX)
        self._warned_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent | None) -> None:
        """Return at once."""
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
        """Wait for what is left to be sent, for some seconds at most."""
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
        """Report nothing before `begin`."""
        self._sender = sender
        self._clock_us = clock_us
        self._report = RunReport()

    def begin(self) -> None:
        """Send START, the first time."""
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
        """Note progress, as `RunReport.progress`, and send an event if one is due."""
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
        """Send the last event, if there was a first one."""
        if self._report.has_begun:
            self._sender.send(self._report.end(self._clock_us(), error=error))


@contextmanager
def reported(settings: StreamSettings, *, program: str) -> Iterator[RunLineage | None]:
    """Yield what events are sent by, None if the settings do not ask for them; then end the run.

    Raises ConfigError if openlineage-python is missing, or its configuration is.
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
    # Without handlers of the program's own, its lines would be among ours.
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
    """Return an event as OpenLineage's client has it."""
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
        inputs=[v2.InputDataset(one.namespace, one.name, facets=_schema(one)) for one in inputs],
        outputs=[_output(one, event.rows) for one in outputs],
    )


def _progress(watermark_us: int) -> Any:
    """Return our own facet: up to which commit time the run has written everything."""
    from openlineage.client.generated.base import RunFacet  # noqa: PLC0415

    return RunFacet().with_additional_properties(watermark=format_rfc3339(watermark_us * NS_PER_US))


def _schema(one: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset as schema  # noqa: PLC0415

    if not one.fields:
        return {}
    fields = [
        schema.SchemaDatasetFacetFields(name=name, type=kind, ordinal_position=place)
        for place, (name, kind) in enumerate(one.fields, start=1)
    ]
    return {"schema": schema.SchemaDatasetFacet(fields=fields)}


def _output(one: Dataset, rows: Mapping[str, int]) -> Any:
    from openlineage.client.event_v2 import OutputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import (  # noqa: PLC0415
        output_statistics_output_dataset as statistics,
    )

    counted = statistics.OutputStatisticsOutputDatasetFacet(rowCount=rows.get(one.rows_of, 0))
    facets: dict[str, Any] = {"outputStatistics": counted} if one.rows_of else {}
    return OutputDataset(one.namespace, one.name, facets=_schema(one), outputFacets=facets)

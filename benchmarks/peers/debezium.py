"""Debezium's connector for Spanner in Kafka Connect's standalone runtime: one process, one task.

The options of the JVM are those of Kafka's own start script.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.backlog import STREAM
from benchmarks.peers.parts import PeerParts
from tidegate.local_stack.parts.process import HOST, ProcessSpec, choose_ports
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.program.java import Java

_CONNECT = "org.apache.kafka.connect.cli.ConnectStandalone"
_JVM = (
    *("-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
JSON = {
    "converter": "org.apache.kafka.connect.json.JsonConverter",
    "converter.schemas.enable": "false",
}
_LOW_WATERMARK = {
    "gcp.spanner.low-watermark.enabled": "true",
    "gcp.spanner.low-watermark.update-period.ms": "1000",
    "heartbeat.interval.ms": "1000",
}
_FLUSHES = {"offset.flush.interval.ms": "1000"}
"""By default 300 s and 60 s: no low watermark would come within a run of two minutes."""
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{2} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def avro(registry_url: str) -> dict[str, str]:
    """Return the converter to Avro; `registry_url` is where the registry speaks Confluent's API."""
    address = registry_url.partition("/apis/")[0]
    return {
        "converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "converter.apicurio.registry.url": f"{address}/apis/registry/v2",
        "converter.apicurio.registry.auto-register": "true",
        "converter.apicurio.registry.find-latest": "true",
    }


def connect_program(
    java: Java,
    parts: PeerParts,
    folder: Path,
    *,
    name: str,
    bootstrap_servers: str,
    database: DatabaseName,
    start: str,
    converter: Mapping[str, str],
    has_low_watermark: bool = False,
) -> ProcessSpec:
    """Write the settings below `folder`; return the program that publishes from `start` on.

    `converter` is one of this module: what keys and values are written in.  With a low watermark
    each event has it, and what it waits for comes as often as is sensible.
    """
    folder.mkdir(parents=True, exist_ok=True)
    worker = {
        "bootstrap.servers": bootstrap_servers,
        "listeners": f"http://{HOST}:{choose_ports({'connect': 0})['connect']}",
        "offset.storage.file.filename": str(folder / "offsets"),
        "plugin.path": str(parts.plugin_path),
        # The first is quicker; the second, the default, also finds plug-ins that do not announce
        # themselves, as the converter to Avro.
        "plugin.discovery": "service_load" if converter is JSON else "hybrid_warn",
        **{f"{of}.{name}": value for of in ("key", "value") for name, value in converter.items()},
        **(_FLUSHES if has_low_watermark else {}),
    }
    connector = _connector_settings(
        name, bootstrap_servers=bootstrap_servers, database=database, start=start
    ) | (_LOW_WATERMARK if has_low_watermark else {})
    files = [
        _write(folder / f"{kind}.properties", settings)
        for kind, settings in (("worker", worker), ("connector", connector))
    ]
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    return ProcessSpec(
        name=name,
        command=[
            *(str(java.program), *_JVM, f"-Dlog4j2.configurationFile={logging}"),
            *("-cp", parts.connect_class_path, _CONNECT, *map(str, files)),
        ],
        log=folder / "connect.log",
        environ={**os.environ, "SPANNER_EMULATOR_HOST": database.address},
        folder=folder,
    )


def _connector_settings(
    name: str, *, bootstrap_servers: str, database: DatabaseName, start: str
) -> dict[str, str]:
    """Return the connector's own settings: what it needs, and its defaults for the rest."""
    return {
        "name": name,
        "connector.class": "io.debezium.connector.spanner.SpannerConnector",
        # All tasks of a standalone runtime are in one process; more of them cost more.
        "tasks.max": "1",
        "tasks.min": "1",
        "gcp.spanner.project.id": database.project,
        "gcp.spanner.instance.id": database.instance,
        "gcp.spanner.database.id": database.database,
        "gcp.spanner.change.stream": STREAM,
        "gcp.spanner.emulator.host": f"http://{database.address}",
        "gcp.spanner.start.time": start,
        "connector.spanner.sync.kafka.bootstrap.servers": bootstrap_servers,
        # The broker creates no topics by itself: Connect creates that of the heartbeats.
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }


def _write(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path

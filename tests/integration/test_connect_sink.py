"""A sink of Kafka Connect reads flat values by a converter of another project."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from google.cloud.spanner_v1 import KeySet

from benchmarks.peers.debezium import avro
from benchmarks.peers.parts import fetch_peer_parts
from tests.integration.shared_stack import PATIENCE_S, running, until
from tests.tidy.printed_commands import blocks
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import HOST, ChildProcess, ProcessSpec, choose_ports

pytestmark = [
    pytest.mark.integration, pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900),
]  # fmt: skip

DDL = [
    "CREATE TABLE Orders (Id INT64 NOT NULL, Text STRING(MAX), Price NUMERIC) PRIMARY KEY (Id)",
    (
        "CREATE CHANGE STREAM Feed FOR ALL OPTIONS "
        "(value_capture_type = 'NEW_ROW', retention_period = '7d')"
    ),
]
COLUMNS = ("Id", "Text", "Price")
CONNECT = "org.apache.kafka.connect.cli.ConnectStandalone"


def printed(first):
    """Return the properties of the page's block that has this name."""
    (found,) = [
        block.content
        for block in blocks("properties")
        if block.page == "docs/how-to/kafka-connect.md" and first in block.content
    ]
    lines = (line.partition("=") for line in found.splitlines() if line[:1] not in ("#", ""))
    return {name: value for name, _, value in lines}


def write(path, settings):
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def connect(folder, stack, topic, target):
    """Return a Connect with a sink to a file, by the settings of the page where they fit."""
    java, apicurio = find_java(), printed("apicurio.registry.url")
    parts = fetch_peer_parts(java, report=print)
    converter = {
        **avro(stack.registry_url),
        **{
            name.removeprefix("value."): value
            for name, value in apicurio.items()
            if not name.endswith(".url")
        },
    }
    worker = {
        **{n: v for n, v in printed("worker.properties").items() if ".converter" not in n},
        "bootstrap.servers": stack.bootstrap_servers,
        "listeners": f"http://{HOST}:{choose_ports({'connect': 0})['connect']}",
        "offset.storage.file.filename": str(folder / "offsets"),
        "plugin.path": str(parts.root / "avro"),
        "plugin.discovery": "hybrid_warn",
        **{
            f"{side}.{name}": value
            for side in ("key", "value")
            for name, value in converter.items()
        },
    }
    shown = printed("sink.properties")
    sink = {
        "name": "orders-to-a-file",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": topic,
        "file": str(target),
        **{name: value for name, value in shown.items() if name.startswith("transforms")},
        "transforms": f"live,{shown['transforms']}",
        "transforms.live.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.live.predicate": "tombstone",
        "predicates": "tombstone",
        "predicates.tombstone.type": (
            "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
        ),
    }
    files = [write(folder / f"{name}.properties", one) for name, one in
             (("worker", worker), ("sink", sink))]  # fmt: skip
    return ProcessSpec(
        name="connect",
        command=[
            *(str(java.program), "-Xmx512m", "-cp", parts.connect_class_path, CONNECT),
            *files,
        ],
        log=folder / "connect.log",
        environ={**os.environ},
        folder=folder,
    )


def test_a_sink_gets_rows_by_the_settings_of_the_page(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_ENVELOPE="flat", PRODUCER_TOMBSTONES="true")
    target = Path(tmp_path, "orders.txt")
    spec = connect(tmp_path, shared_stack, f"{programs.prefix}.Orders", target)
    with running(programs), ChildProcess(spec) as sink:
        with database.batch() as batch:
            batch.insert("Orders", COLUMNS, [(1, "a", "1.5"), (2, None, None)])
        with database.batch() as batch:
            batch.update("Orders", ("Id", "Text"), [(1, "b")])
        with database.batch() as batch:
            batch.delete("Orders", KeySet(keys=[[1]]))

        def lines():
            assert sink.is_running, spec.log.read_text()[-3_000:]
            return target.read_text().splitlines() if target.exists() else []

        until(lambda: len(lines()) >= 4, lambda: spec.log.read_text()[-3_000:],
              patience_s=2 * PATIENCE_S)  # fmt: skip
        found = lines()
    fields = [dict(re.findall(r"(\w+)=([^,}]*)", line)) for line in found]
    # Tombstones are left out by the predicate, and what is null by a struct's text.
    of_first = [
        (one["__op"], one["__deleted"], one.get("Text"), one.get("Price"))
        for one in fields
        if one["Id"] == "1"
    ]
    assert of_first == [
        ("c", "false", "a", "1.500000000"),
        ("u", "false", "b", "1.500000000"),
        ("d", "true", None, None),
    ]
    (second,) = [one for one in fields if one["Id"] == "2"]
    assert "Text" not in second
    assert all("__columns" not in one and one["__commit_timestamp"] for one in fields)

"""Sinks of Kafka Connect read flat values by a converter of another project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from google.cloud.spanner_v1 import KeySet

from benchmarks.peers.debezium import avro
from benchmarks.peers.parts import fetch_peer_parts
from tests.integration.shared_stack import PATIENCE_S, running, until
from tests.other_jars import fetched
from tests.tidy.printed_commands import blocks
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import (
    HOST,
    ChildProcess,
    ProcessSpec,
    accepts,
    choose_ports,
)

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


def connect(folder, stack, sink, *, plugins=()):
    """Return a Connect with a sink, by the settings of the page where they fit."""
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
        "plugin.path": ",".join(map(str, (parts.root / "avro", *plugins))),
        "plugin.discovery": "hybrid_warn",
        **{
            f"{side}.{name}": value
            for side in ("key", "value")
            for name, value in converter.items()
        },
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


def to_a_file(topic, target):
    """Return a sink that appends each record's text to a file; it knows no tombstones."""
    shown = printed("sink.properties")
    return {
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


def write_orders(database):
    """Insert two orders, change the first, and delete it."""
    with database.batch() as batch:
        batch.insert("Orders", COLUMNS, [(1, "a", "1.5"), (2, None, None)])
    with database.batch() as batch:
        batch.update("Orders", ("Id", "Text"), [(1, "b")])
    with database.batch() as batch:
        batch.delete("Orders", KeySet(keys=[[1]]))


def test_a_sink_gets_rows_by_the_settings_of_the_page(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_ENVELOPE="flat", PRODUCER_TOMBSTONES="true")
    target = Path(tmp_path, "orders.txt")
    spec = connect(tmp_path, shared_stack, to_a_file(f"{programs.prefix}.Orders", target))
    with running(programs), ChildProcess(spec) as sink:
        write_orders(database)

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


# ---------------------------------------------------------------- a table of SQL

JDBC_SINK = "io.debezium:debezium-connector-jdbc:3.5.0.Final"
OF_CONNECT = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
)
"""Connect has these; a plugin with its own fails at Connect's modules for them."""


def postgres_programs():
    """Return the folder of PostgreSQL's programs; None if it is not installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


@pytest.fixture
def postgres(tmp_path):
    """A PostgreSQL of the test's own: its port."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL: type apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
    # It refuses to run as root; its package has a user for it.
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")
    subprocess.run(
        [*user, programs / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust"],
        check=True, capture_output=True,
    )  # fmt: skip
    port = choose_ports({"postgres": 0})["postgres"]
    spec = ProcessSpec(
        name="postgres",
        command=[
            *user, str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port),
            "-k", str(folder), "-c", f"listen_addresses={HOST}",
        ],
        log=tmp_path / "postgres.log",
        folder=folder,
    )  # fmt: skip
    with ChildProcess(spec):
        until(lambda: accepts(port))
        yield port
    shutil.rmtree(folder, ignore_errors=True)


def sql(port, query):
    """Return the rows of a query; none while there is no such table."""
    psql = [postgres_programs() / "psql", "-h", HOST, "-p", str(port), "-U", "postgres", "-At"]
    done = subprocess.run([*psql, "-c", query], check=False, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_table_of_sql_equals_the_source_by_the_settings_of_the_page(
    shared_stack, postgres, tmp_path
):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_ENVELOPE="flat", PRODUCER_TOMBSTONES="true")
    sink = {
        **printed("sink.properties"),
        "topics": f"{programs.prefix}.Orders",
        "connection.url": f"jdbc:postgresql://{HOST}:{postgres}/postgres",
        "connection.username": "postgres",
    }
    # Connect takes each folder of a plugin path as one plugin.
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "jdbc").symlink_to(fetched(JDBC_SINK, left_out=OF_CONNECT))
    spec = connect(tmp_path, shared_stack, sink, plugins=[plugins])
    with running(programs), ChildProcess(spec) as connected:

        def rows():
            assert connected.is_running, spec.log.read_text()[-3_000:]
            return sql(postgres, 'SELECT "Id", "Text", "Price" FROM "Orders" ORDER BY 1')

        def story():
            return f"{rows()}\n{spec.log.read_text()[-5_000:]}"

        write_orders(database)
        with database.batch() as batch:
            batch.insert("Orders", COLUMNS, [(3, "last", "2.25")])
        until(lambda: rows() == ["2||", "3|last|2.250000000"], story, patience_s=2 * PATIENCE_S)
        with database.batch() as batch:
            batch.update("Orders", COLUMNS, [(2, "two", "7")])
        until(
            lambda: rows() == ["2|two|7.000000000", "3|last|2.250000000"],
            story,
            patience_s=PATIENCE_S,
        )

"""A stream whose data topics have names of their own: from Spanner to the mirror, and who may join.

The second half is what a wrong setting would do: nothing would be read, or somebody else's topics.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import deltalake
import pytest

from tests.integration.commands import run_consumer, run_producer
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import commit_time_us, create_database
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.program.kafka_clients import list_topics

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    "CREATE TABLE Orders (Id INT64, Amount INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL",
]
LATER = "CREATE TABLE Later (Id INT64) PRIMARY KEY (Id)"
PATIENCE_S = 300
PRODUCER, CONSUMER = "TIDEGATE_PRODUCER_TOPIC_TEMPLATE", "TIDEGATE_CONSUMER_TOPIC_TEMPLATE"
DEFAULT = "{prefix}.{table}"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with LocalStack(load_config(data_dir=tmp_path_factory.mktemp("stack"), seed=5)) as stack:
        yield stack


@pytest.mark.parametrize(
    ("prefix", "template", "resolved"),
    [
        pytest.param("dashed", "{prefix}-{table}", "{prefix}-{table}", marks=pytest.mark.deep),
        ("named", "{prefix}.{database}.{table}", "{prefix}.db-named.{table}"),
    ],
)
def test_from_spanner_to_the_mirror_under_other_names(stack, tmp_path, prefix, template, resolved):
    name = DatabaseName(address=stack.spanner_address, instance=prefix, database=f"db-{prefix}")
    database = create_database(name, DDL)
    programs = Programs(
        folder=tmp_path,
        bootstrap_servers=stack.bootstrap_servers,
        registry_url=stack.registry_url,
        spanner_address=stack.spanner_address,
        database=name,
        stream="Feed",
        prefix=prefix,
        more={PRODUCER: template, CONSUMER: resolved},
    )
    orders, later = (
        resolved.replace("{prefix}", prefix).replace("{table}", table)
        for table in ("Orders", "Later")
    )

    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(2, start=datetime.now(UTC).isoformat().replace("+00:00", "Z"))
        with database.batch() as batch:
            batch.insert("Orders", ("Id", "Amount"), [(key, key) for key in range(20)])
        database.update_ddl([LATER]).result(PATIENCE_S)
        with database.batch() as batch:
            batch.update("Orders", ("Id", "Amount"), [(1, 10)])
            batch.insert("Later", ("Id",), [(7,)])
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(batch.committed), deadline_s=PATIENCE_S)
        found = read_everything(stack, orders, count=21)
    finally:
        faults = pipeline.stop()
    assert faults == []

    mirrors = tmp_path / "output" / "mirror"
    rows = deltalake.DeltaTable(mirrors / "Orders").to_pyarrow_table().to_pylist()
    assert {row["Id"]: row["Amount"] for row in rows} == {n: n for n in range(20)} | {1: 10}
    assert deltalake.DeltaTable(mirrors / "Later").to_pyarrow_table().to_pylist() == [{"Id": 7}]
    assert len(found) == 21
    own = {one for one in list_topics(stack.bootstrap_servers) if one.startswith(prefix)}
    assert own == {orders, later, f"{prefix}-progress"}

    commands_follow_the_template(programs, orders, later)
    others_are_refused(programs, resolved)
    a_prefix_that_continues_this_one(programs, template)
    if prefix == "dashed":
        audited = run_consumer(programs, "audit", "--json")
        assert audited.returncode == 0, audited.stderr


def commands_follow_the_template(programs, orders, later):
    prefix = programs.prefix
    listed = run_producer(programs, "schemas", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    subjects = {one["subject"] for one in json.loads(listed.stdout)}
    assert {f"{orders}-value", f"{later}-key", f"{prefix}-progress-value"} <= subjects
    report = run_producer(programs, "reset", "--dry-run", "--json")
    assert json.loads(report.stdout)["topics"] == sorted([orders, later, f"{prefix}-progress"])


def others_are_refused(programs, resolved):
    """A worker, a reset and a gate that go by other names end before they write anything."""
    hint = f'Set topic_template = "{resolved}"'
    for command in (("check",), ("status",)):
        done = run_producer(programs, *command, **{PRODUCER: DEFAULT})
        assert done.returncode == 2, done.stderr
        assert f"topic_template: recorded {resolved!r}, now {DEFAULT!r}" in done.stderr
    for command in (("reset", "--yes"), ("schemas", "list")):
        done = run_producer(programs, *command, **{PRODUCER: DEFAULT})
        assert done.returncode == 2, done.stderr
        assert hint in done.stderr
    elsewhere = programs.folder / "elsewhere"
    paths = {
        "TIDEGATE_CONSUMER_OUTPUT": str(elsewhere / "output"),
        "TIDEGATE_CONSUMER_CHECKPOINT": str(elsewhere / "checkpoint"),
    }
    for command, places in (("run", paths), ("audit", {})):
        done = run_consumer(programs, command, **{CONSUMER: DEFAULT}, **places)
        assert done.returncode == 2, done.stderr
        assert hint in done.stderr
        assert not elsewhere.exists()


def a_prefix_that_continues_this_one(programs, template):
    """Under `{prefix}-{table}` this stream takes the topics of such a prefix, which is refused."""
    beside = {"TIDEGATE_PRODUCER_PREFIX": f"{programs.prefix}-x", PRODUCER: DEFAULT}
    done = run_producer(programs, "check", **beside)
    takes = template.startswith("{prefix}-")
    assert done.returncode == (2 if takes else 0), done.stderr
    assert ("continue each other" in done.stderr) == takes

"""Commands beside real workers, and what they do to a stream: reset, names of topics, versions."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.integration.shared_stack import (
    PATIENCE_S,
    gate,
    now,
    open_shared_stack,
    read_everything,
    read_published,
    release,
    rows_of,
    run_consumer,
    run_producer,
    running,
    wait_for,
    wait_released,
    with_command,
)
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.judge.log import fetch_commit_log, origin_number
from tidegate.local_stack.parts.process import choose_ports
from tidegate.spark_consumer.errors import DataTopicChanged
from tidegate.spark_consumer.library.query import QueryFailed

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

SEEN = "CREATE TABLE Seen (Id INT64, V INT64) PRIMARY KEY (Id)"
DDL = [SEEN, "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')"]
ROOT = Path(__file__).resolve().parents[2]


def put(database, *rows):
    with database.batch() as batch:
        batch.insert_or_update("Seen", ("Id", "V"), rows)
    return commit_time_us(batch.committed)


# ---------------------------------------------------------------- status, lineage, schemas

OPEN = 3
"""Stream partitions, of which a worker may query one."""


def test_status_shows_what_is_open_in_kafka_and_what_is_queued_in_the_worker(
    kafka_and_registry, tmp_path
):
    with open_shared_stack(kafka_and_registry, tmp_path, stream_partitions=OPEN) as stack:
        stack.create_database(DDL)
        port = choose_ports({"metrics": 0})["metrics"]
        programs = stack.programs(
            PRODUCER_OPEN_QUERIES_MAX=1, PRODUCER_METRICS_PORT=port, PRODUCER_SLOTS=4
        )

        def status(*arguments, command="status"):
            metrics = ("--metrics", f"127.0.0.1:{port}") if command == "status" else ()
            done = run_producer(programs, command, *metrics, *arguments, COLUMNS="400")
            assert done.returncode == 0, done.stderr
            return done.stdout

        def is_reading():
            """Whether worker and progress topic show all; first there is no stream."""
            found = json.loads(status("--json"))
            if found["state"] == "Not started":
                assert "holds no stream" in found["reason"]
                return False
            (worker,) = found["workers"]
            are_open = [one["condition"] for one in found["partitions"]] == ["open"] * OPEN
            reads = (worker["running"], worker["queued"]) == (1, OPEN - 1)
            return reads and are_open and found["watermark_us"] is not None

        with running(programs) as pipeline:
            pipeline.wait(is_reading, what="one query, two queued", deadline_s=PATIENCE_S)
            found = json.loads(status("--json"))
            text = status("--slowest", "1")
            graph = json.loads(status("--json", command="lineage"))
            drawn = status("--format", "mermaid", command="lineage")
    assert [one["condition"] for one in found["partitions"]] == ["open"] * OPEN
    assert {one["worker"] for one in found["partitions"]} == {"w1"}
    assert sum(slot["open"] for slot in found["slots"]) == OPEN
    assert len(found["slots"]) == 4
    assert found["lag_s"] >= 0
    assert found["stream"].endswith("/changeStreams/Feed")
    assert (found["state"], found["members"]) == ("Running", ["w1"])
    assert found["since_us"] is not None
    (worker,) = found["workers"]
    assert worker["retried"] is not None
    assert (worker["paused"], worker["stopped"], worker["error"]) == (0, 0, "")
    assert f"{OPEN} stream partitions are open; the watermark is behind by" in text
    assert len([one for one in found["partitions"] if one["token"] in text]) == 1
    assert worker["address"] in text[text.index("Metrics") :]
    tokens = {one["token"] for one in graph["partitions"]}
    assert tokens == {one["token"] for one in found["partitions"]}
    assert drawn.count(":::open") == OPEN


def test_schemas_are_registered_ahead_of_the_first_worker(shared_stack):
    prefix = shared_stack.prefix
    subjects = [f"{prefix}.Seen-key", f"{prefix}.Seen-value"]
    subjects += [f"{prefix}-progress-key", f"{prefix}-progress-value"]
    shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_SLOTS=4)

    def run(*arguments):
        found = run_producer(programs, *arguments)
        return found.returncode, found.stdout

    assert run("schemas", "check") == (1, "\n".join(subjects) + "\n")
    assert run("schemas", "register") == (0, "\n".join(subjects) + "\n")
    assert run("schemas", "check") == run("schemas", "register") == (0, "")
    assert shared_stack.topics() == set()

    with running(programs) as pipeline:
        pipeline.wait(
            lambda: "epoch" in json.loads(run("status", "--json")[1]),
            what="the stream to begin", deadline_s=PATIENCE_S,
        )  # fmt: skip
        listed = json.loads(run("schemas", "list", "--json")[1])
        assert [one["subject"] for one in listed] == sorted(subjects)
        assert {one["compatibility"] for one in listed} == {"BACKWARD"}
        shown = json.loads(run("schemas", "show", "Seen", "--key")[1])
        assert [field["name"] for field in shown["fields"]] == ["Id"]
        channels = json.loads(run("schemas", "asyncapi")[1])["channels"]
        found = {channel["address"]: channel["bindings"]["kafka"] for channel in channels.values()}
        assert {topic: one["partitions"] for topic, one in found.items()} == {
            f"{prefix}.Seen": 6,
            f"{prefix}-progress": 4,
        }


# ---------------------------------------------------------------- reset


def test_it_begins_again(shared_stack, spark):
    """Who has read the former stream does not take it for the new one."""
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_SESSION_TIMEOUT_MS=6000)
    prefix, topic = shared_stack.prefix, shared_stack.topic("Seen")

    def run(*arguments):
        done = run_producer(programs, *arguments)
        return done.returncode, done.stdout, done.stderr

    def epoch():
        code, text, _ = run("status", "--json")
        return json.loads(text).get("epoch") if code == 0 else None

    with running(programs) as pipeline:
        at_us = put(database, (1, 1))
        pipeline.wait(epoch, what="the stream", deadline_s=PATIENCE_S)
        first = epoch()
        code, _, errors = run("reset", "--yes")
        assert (code, f"workers run in group {prefix}-fleet: w1" in errors) == (2, True)
        release(spark, pipeline, at_us)

    code, text, _ = run("reset", "--dry-run", "--json", "--subjects")
    report = json.loads(text)
    assert (code, report["topics"], report["removed"]) == (0, [f"{prefix}-progress", topic], False)
    assert f"{prefix}-fleet" in report["groups"]
    assert f"{topic}-value" in report["subjects"]
    assert run("reset", "--yes")[0] == 0
    assert shared_stack.topics() == set()
    # The subjects have no topic any more, and are found all the same.
    code, text, _ = run("reset", "--yes", "--json", "--subjects")
    assert (code, json.loads(text)["removed"]) == (0, True)
    assert json.loads(text)["subjects"] == report["subjects"]
    for options in ((), ("--subjects",)):
        assert run("reset", "--yes", *options)[:2] == (0, "There is nothing to delete.\n")

    with running(programs) as pipeline:
        put(database, (2, 2))
        pipeline.wait(
            lambda: epoch() not in (None, first), what="a new epoch", deadline_s=PATIENCE_S
        )
        (message,) = read_everything(shared_stack, topic, count=1)
        assert message.key() == {"Id": 2}
        # The gate that has read the former topics ends, and names what is wrong: at its start, or
        # once it has read what the new stream has where the former one had as much.
        with (
            pytest.raises((QueryFailed, DataTopicChanged), match="re-created"),
            gate(spark, programs) as query,
        ):
            query.awaitTermination(PATIENCE_S)


# ---------------------------------------------------------------- an idle consumer


SLOTS = 4


def test_an_idle_consumer_waits_for_changes_and_not_for_heartbeats(shared_stack, spark):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_HEARTBEAT_MS=250, PRODUCER_SLOTS=SLOTS)
    progress = f"{shared_stack.prefix}-progress"
    admin = AdminClient({"bootstrap.servers": shared_stack.bootstrap_servers})
    hour_ms = 3_600_000
    with running(programs) as pipeline, gate(spark, programs, idle_interval_ms=hour_ms) as query:

        def figures():
            slots = [TopicPartition(progress, number) for number in range(SLOTS)]
            ends = admin.list_offsets(dict.fromkeys(slots, OffsetSpec.latest()))
            return query.status()["batch"], sum(end.result().offset for end in ends.values())

        def is_idle():
            batch, before = figures()
            while (found := figures())[0] == batch:
                if found[1] >= before + 20:
                    return True
                time.sleep(0.1)
            return False

        put(database, (1, 1))
        assert query.awaitRelease(timeout=PATIENCE_S)
        wait_for(query, pipeline, is_idle, what="heartbeats without a batch")
        wait_released(query, pipeline, put(database, (2, 2)))
        wait_for(query, pipeline, is_idle, what="heartbeats without a batch")
        # Nothing is committed at this time, so that only heartbeats prove it.
        assert query.awaitRelease(timeout=PATIENCE_S)
    assert {row["Id"] for row in rows_of(programs, "mirror/Seen")} == {1, 2}


# ---------------------------------------------------------------- names of topics

PRODUCER, CONSUMER = "PRODUCER_TOPIC_TEMPLATE", "CONSUMER_TOPIC_TEMPLATE"
DEFAULT = "{prefix}.{table}"


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{prefix}-{table}", marks=pytest.mark.deep),
        "{prefix}.{database}.{table}",
    ],
)
def test_from_spanner_to_the_mirror_under_other_names(shared_stack, spark, template):
    database, prefix = shared_stack.create_database(DDL), shared_stack.prefix
    resolved = template.replace("{database}", shared_stack.database_name.database)
    programs = shared_stack.programs(**{PRODUCER: template, CONSUMER: resolved})
    seen, later = (
        resolved.replace("{prefix}", prefix).replace("{table}", table)
        for table in ("Seen", "Later")
    )
    with running(programs, 2) as pipeline:
        put(database, *((key, key) for key in range(20)))
        database.update_ddl([SEEN.replace("Seen", "Later")]).result(PATIENCE_S)
        with database.batch() as batch:
            batch.update("Seen", ("Id", "V"), [(1, 10)])
            batch.insert("Later", ("Id",), [(7,)])
        release(spark, pipeline, commit_time_us(batch.committed))
        found = read_everything(shared_stack, seen, count=21)
    rows = rows_of(programs, "mirror/Seen")
    assert {row["Id"]: row["V"] for row in rows} == {n: n for n in range(20)} | {1: 10}
    assert rows_of(programs, "mirror/Later") == [{"Id": 7, "V": None}]
    assert len(found) == 21
    assert shared_stack.topics() == {seen, later, f"{prefix}-progress"}

    listed = json.loads(run_producer(programs, "schemas", "list", "--json").stdout)
    subjects = {one["subject"] for one in listed}
    assert {f"{seen}-value", f"{later}-key", f"{prefix}-progress-value"} <= subjects
    report = json.loads(run_producer(programs, "reset", "--dry-run", "--json").stdout)
    assert report["topics"] == sorted([seen, later, f"{prefix}-progress"])
    others_are_refused(programs, resolved)
    # Under `{prefix}-{table}` this stream takes the topics of a prefix that continues its own.
    beside = {"PRODUCER_PREFIX": f"{prefix}-x", PRODUCER: DEFAULT}
    done = run_producer(replace(programs, prefix=f"{prefix}-x"), "check", **beside)
    takes = template.startswith("{prefix}-")
    assert done.returncode == (2 if takes else 0), done.stderr
    assert ("continue each other" in done.stderr) == takes


def others_are_refused(programs, resolved):
    """A worker, a reset and a gate that go by other names end before they write anything."""
    hint = f'Set topic_template = "{resolved}"'
    recorded = f"topic_template: recorded {resolved!r}, now {DEFAULT!r}"
    for text, *command in (
        (recorded, "check"),
        (recorded, "status"),
        (hint, "reset", "--yes"),
        (hint, "schemas", "list"),
    ):
        done = run_producer(programs, *command, **{PRODUCER: DEFAULT})
        assert done.returncode == 2, done.stderr
        assert text in done.stderr
    elsewhere = replace(programs, folder=programs.folder / "elsewhere")
    for command, of in (("run", elsewhere), ("audit", programs)):
        done = run_consumer(of, command, **{CONSUMER: DEFAULT})
        assert done.returncode == 2, done.stderr
        assert hint in done.stderr
    assert not elsewhere.output.exists()


# ---------------------------------------------------------------- two versions


def test_both_forms_of_one_stream_partition_are_read_alike(shared_stack, spark):
    """Workers of today and of before the header `origin` write one topic in turns.

    Every reader sees the same stream partition for the messages of both: a plain one in the header
    or in the value, and the Spark consumer in the column `origin` of its changelog.
    """
    database, programs = shared_stack.create_database(DDL), shared_stack.programs()
    keys, topic = range(5), shared_stack.topic("Seen")
    today = programs.worker("w1", start=now())
    command = [sys.executable, "-m", "tests.integration.older_worker", "run"]
    older = with_command(today, command, PYTHONPATH=str(ROOT))
    with running(programs, 0) as pipeline:
        for version, worker in enumerate((today, older, today)):
            pipeline.workers = [worker]
            worker.start()
            us = put(database, *((key, version) for key in keys))
            count = (version + 1) * len(keys)
            messages = read_published(shared_stack, pipeline, topic, count=count)
            if version < 2:
                assert worker.stop() == 0
        release(spark, pipeline, us)
    log = fetch_commit_log(
        shared_stack.control_address, database=shared_stack.database_name.path, stream="Feed"
    )
    of_transaction = {}
    for one in log:
        (of_transaction[one.server_transaction_id],) = one.stream_partition_tokens
    forms = set()
    for message in messages:
        source, headers = message.value()["source"], dict(message.headers())
        token = of_transaction[source["server_transaction_id"]]
        written = headers.get("origin"), source["partition_token"]
        header = origin_number(token).to_bytes(8, "big", signed=True)
        assert written in ((header, ""), (None, token))
        forms.add((token, bool(source["partition_token"])))
    assert {is_older for _, is_older in forms} == {True, False}
    assert len(forms) > len({token for token, _ in forms}), "no stream partition has both forms"

    rows = rows_of(programs, "changelog/Seen")
    assert len(rows) == len(messages) == 3 * len(keys)
    for row in rows:
        assert row["origin"] == origin_number(of_transaction[row["server_transaction_id"]])
    assert {bool(row["source"]["partition_token"]) for row in rows} == {True, False}

"""What is compared with what: options, the turn of the programs, the ratios, their settings."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.peers import __main__ as program
from benchmarks.peers import publishing
from benchmarks.peers.backlog import ROWS_AT_ONCE, STREAM, STREAM_PARTITIONS, write_backlog
from benchmarks.peers.debezium import avro, connect_program
from benchmarks.peers.parts import PeerParts, fetch_peer_parts
from benchmarks.peers.worker import AS_DEBEZIUM, worker_program
from spanner_simulator import Simulator
from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts import jvm_parts
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.program.java import Java
from tidegate.schemas.instants import parse_rfc3339_ns

DATABASE = DatabaseName("127.0.0.1:9010", instance="peers", database="peers")
START = "2026-01-01T00:00:00.000001Z"


def figures(cpu_us, warm_cpu_us):
    return {"cpu_us": cpu_us, "warm_cpu_us": warm_cpu_us}


def test_ratios_are_those_of_the_medians_and_every_program_is_first_in_some_round(capsys):
    rounds = {
        "debezium, JSON": [figures(200.0, 120.0), figures(180.0, 130.0), figures(900.0, 125.0)],
        "tidegate": [figures(40.0, 10.0), figures(50.0, 12.5)],
    }
    peer, ours = found = program.summaries(rounds)
    assert ours["cpu_us"] == {"median": 45.0, "min": 40.0, "max": 50.0}
    assert ours["times"] == {"debezium, JSON": {"cpu_us": 4.44, "warm_cpu_us": 11.11}}
    assert "times" not in peer
    program._show(found)
    printed = capsys.readouterr().out
    assert "| tidegate | warm_cpu_us | 11.2 (10.0 to 12.5) |\n" in printed
    assert printed.endswith("of those of debezium, JSON | 4.44 with the start, 11.11 warm |\n")
    names = list(program.PROGRAMS)
    assert [program._in_turn(names, number)[0] for number in range(len(names))] == names
    assert sorted(program._in_turn(names, 5)) == sorted(names)


def test_a_program_that_fails_costs_the_others_nothing(capsys, monkeypatch):
    config = SimpleNamespace(data_dir=Path("/nowhere"))
    stack = SimpleNamespace(spanner_address="", bootstrap_servers="", config=config)
    monkeypatch.setattr(program, "LocalStack", lambda *_, **__: nullcontext(stack))
    monkeypatch.setattr(program, "accelerator", object)
    monkeypatch.setattr(program, "find_java", lambda: Java(Path("/java"), 17))
    parts = SimpleNamespace(version=lambda _artifact: "1")
    monkeypatch.setattr(program, "fetch_peer_parts", lambda *_, **__: parts)
    monkeypatch.setattr(program, "write_backlog", lambda *_, **__: START)
    for name in program.PROGRAMS:
        monkeypatch.setitem(program.PROGRAMS, name, lambda _setting, made: made)

    def publish(made, **_):
        if made.startswith("debezium"):
            raise SystemExit("it published nothing")
        return figures(40.0, 10.0)

    monkeypatch.setattr(program, "publish", publish)
    with pytest.raises(SystemExit) as caught:
        program.main(
            ["debezium", "--only", "debezium, JSON", "tidegate", "--rounds", "2", "--json"]
        )

    printed = capsys.readouterr()
    (ours,) = json.loads(printed.out)["measured"]
    assert (caught.value.code, ours["name"], ours["rounds"]) == (1, "tidegate", 2)
    assert printed.err.count("debezium, JSON: it published nothing") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["maxwell"], "invalid choice: 'maxwell'"),
        (["debezium", "--only", "flink"], "unknown names ['flink']; known: debezium, JSON; "),
        (["debezium", "steady", "--only", "debezium, Avro"], "known: debezium, JSON; tidegate"),
        (["debezium", "--changes", "3050"], "--changes is a multiple of 100, 3000 or more"),
        (["debezium", "--changes", "2900"], "--changes is a multiple of 100, 3000 or more"),
    ],
)
def test_a_wrong_option_is_refused(capsys, arguments, complaint):
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert complaint in capsys.readouterr().err


def test_programs_are_set_to_the_simulator_and_the_time_before_the_backlog(tmp_path):
    parts = PeerParts(tmp_path / "parts")
    made = connect_program(
        Java(Path("/java"), 17), parts, tmp_path / "run", name="debezium-0",
        bootstrap_servers="127.0.0.1:9092", database=DATABASE, start=START,
        converter=avro("http://127.0.0.1:8080/apis/ccompat/v7"),
    )  # fmt: skip
    worker, connector = (
        dict(line.split("=", 1) for line in Path(one).read_text().splitlines())
        for one in made.command[-2:]
    )
    assert connector["gcp.spanner.start.time"] == START
    assert connector["gcp.spanner.database.id"] == "peers"
    assert worker["plugin.path"] == f"{parts.root}/debezium,{parts.root}/avro"
    assert worker["key.converter.apicurio.registry.url"].endswith("8080/apis/registry/v2")
    assert made.environ["SPANNER_EMULATOR_HOST"] == DATABASE.address

    stack = SimpleNamespace(bootstrap_servers="127.0.0.1:9092", registry_url="the registry")
    for is_accelerated, switch in ((True, ""), (False, "off")):
        made = worker_program(
            stack, tmp_path / "run", prefix="tidegate-0", database=DATABASE, start=START,
            topic_partitions=6, is_accelerated=is_accelerated, settings=AS_DEBEZIUM,
        )  # fmt: skip
        flags = dict(zip(made.command[4::2], made.command[5::2], strict=True))
        assert (flags["--start"], flags["--value-format"]) == (START, "json")
        assert made.environ["TIDEGATE_ACCELERATOR"] == switch


IVY = """\
#!/bin/sh
echo ran >> {log}
while [ "$1" != "-retrieve" ]; do shift; done
root="${{2%%/\\[conf\\]*}}"
mkdir -p "$root/connect/jars" "$root/debezium/jars"
touch "$root/connect/jars/connect-runtime-4.3.0.jar"
touch "$root/debezium/jars/debezium-connector-spanner-3.6.1.Final.jar"
touch "$root/debezium/jars/debezium-connector-common-3.6.0.Final.jar"
echo "UNRESOLVED DEPENDENCY: nothing"
exit {code}
"""


@pytest.fixture
def java_of(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jvm_parts, "find_ivy_jar", lambda: Path("ivy.jar"))

    def write(code):
        program = tmp_path / f"java-{code}"
        program.write_text(IVY.format(code=code, log=tmp_path / "log"))
        program.chmod(0o755)
        return Java(program, 17)

    return write


def test_after_a_failure_the_next_call_fetches_again_and_the_one_after_it_nothing(
    java_of, tmp_path
):
    with pytest.raises(FetchError, match="UNRESOLVED DEPENDENCY: nothing"):
        fetch_peer_parts(java_of(1), report=print)
    parts, again = (fetch_peer_parts(java_of(0), report=print) for _ in range(2))
    assert parts == again
    assert (tmp_path / "log").read_text() == "ran\n" * 2
    assert parts.version("debezium-connector-spanner") == "3.6.1.Final"
    assert parts.connect_class_path.endswith("/connect/jars/*")
    plugins = [Path(one) for one in parts.plugin_path.split(",")]
    assert [len(list(one.glob("jars/*.jar"))) for one in plugins] == [2, 0]
    with pytest.raises(SystemExit, match="connect-json was not fetched"):
        parts.version("connect-json")


class FakeConsumer:
    """Has so many records at each call, and then none."""

    def __init__(self, counts):
        self.counts = list(counts)
        self.is_closed = False

    def consume(self, _count, timeout):
        assert timeout > 0
        count = self.counts.pop(0) if self.counts else 0
        return [SimpleNamespace(error=lambda: None)] * count

    def close(self):
        self.is_closed = True


@pytest.fixture
def publish(tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "create", lambda *_: None)
    monkeypatch.setattr(publishing, "_SETTLE_S", 0.01)

    def run(code, counts):
        consumer = FakeConsumer(counts)
        monkeypatch.setattr(publishing, "consumer_of", lambda *_: consumer)
        program = ProcessSpec(
            name="a program", command=[sys.executable, "-c", code], log=tmp_path / "log"
        )
        try:
            return publishing.publish(
                program,
                topic="t",
                bootstrap_servers="nowhere",
                changes=300,
                kafka_log=tmp_path / "kafka",
            )
        finally:
            assert consumer.is_closed

    return run


def test_the_first_third_warms_up_and_copies_are_reported(publish, monkeypatch, tmp_path):
    seconds = iter([2.0, 6.0])
    for name, size in (("t-0", 3_070), ("t-1", 2_000), ("u-0", 9_000)):
        (tmp_path / "kafka" / name).mkdir(parents=True)
        (tmp_path / "kafka" / name / "0.log").write_bytes(b"x" * size)
    monkeypatch.setattr(publishing, "cpu_seconds", lambda _pid: next(seconds))
    found = publish("import time; time.sleep(60)", [0, 60, 60, 180, 7])
    assert (found["cpu_s"], found["cpu_us"], found["per_cpu_s"]) == (6.0, 20_000, 50)
    assert found["warm_cpu_us"] == pytest.approx(4e6 / 180)
    assert found["extra"] == 7
    assert found["bytes"] == pytest.approx(5_070 / 307)
    assert 0 < found["first_s"] <= found["wall_s"]


def test_a_program_that_ends_ends_the_comparison_with_its_log(publish, monkeypatch):
    monkeypatch.setattr(publishing, "cpu_seconds", lambda _pid: 1.0)
    with pytest.raises(SystemExit) as caught:
        publish("print('no such table')", [0, 10])
    assert "a program published 10 of 300 changes" in str(caught.value)
    assert "no such table" in str(caught.value)


def test_each_change_has_a_record_of_its_own_in_one_of_all_stream_partitions():
    with Simulator(stream_partitions=STREAM_PARTITIONS) as spanner:
        address = spanner.environment()["SPANNER_EMULATOR_HOST"]
        start = write_backlog(DatabaseName(address, database="peers"), changes=3 * ROWS_AT_ONCE)
        log = spanner.commit_log("peers", STREAM)

    start_ns = parse_rfc3339_ns(start)
    backlog = [one for one in log if parse_rfc3339_ns(one["commit_timestamp"]) >= start_ns]
    assert len(backlog) == 3
    for one in backlog:
        assert {change["mod_type"] for change in one["changes"]} == {"UPDATE"}
        assert len({change["record_sequence"] for change in one["changes"]}) == ROWS_AT_ONCE
        assert len(set(one["stream_partition_tokens"])) == STREAM_PARTITIONS
    # The first one writes what is there; others, which run beside it, may commit before it.
    for one in backlog:
        times = {change["new_values"]["Updated"] for change in one["changes"]}
        assert times == {"2026-01-01T00:00:00Z"} or all(
            change["new_values"] != change["old_values"] for change in one["changes"]
        )

"""What is compared with what: options, the turn of the programs, the ratios, their settings."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.peers import __main__ as program
from benchmarks.peers.debezium import avro, connect_program
from benchmarks.peers.parts import PeerParts
from benchmarks.peers.worker import AS_DEBEZIUM, worker_program
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.java import Java

DATABASE = DatabaseName("127.0.0.1:9010", instance="peers", database="peers")
START = "2026-01-01T00:00:00.000001Z"


def figures(cpu_us, warm_cpu_us):
    return {"cpu_us": cpu_us, "warm_cpu_us": warm_cpu_us}


def test_every_program_is_first_in_some_round():
    names = list(program.PROGRAMS)

    assert [program._in_turn(names, number)[0] for number in range(len(names))] == names
    assert sorted(program._in_turn(names, 5)) == sorted(names)


def test_ratios_are_those_of_the_medians():
    rounds = {
        "debezium, JSON": [figures(200.0, 120.0), figures(180.0, 130.0), figures(900.0, 125.0)],
        "tidegate": [figures(40.0, 10.0), figures(50.0, 12.5)],
    }
    peer, ours = program.summaries(rounds)

    assert ours["cpu_us"] == {"median": 45.0, "min": 40.0, "max": 50.0}
    assert ours["times"] == {"debezium, JSON": {"cpu_us": 4.44, "warm_cpu_us": 11.11}}
    assert "times" not in peer


def test_a_program_that_fails_costs_the_others_nothing(capsys, monkeypatch):
    stack = SimpleNamespace(spanner_address="", bootstrap_servers="")
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


def test_a_table_has_every_figure_and_the_ratios(capsys):
    rounds = {name: [figures(80.0, 20.0)] for name in ("debezium, Avro", "tidegate")}
    program._show(program.summaries(rounds))

    assert "| tidegate | warm_cpu_us | 20.0 (20.0 to 20.0) |\n" in (out := capsys.readouterr().out)
    assert out.endswith("of those of debezium, Avro | 1.0 with the start, 1.0 warm |\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["maxwell"], "invalid choice: 'maxwell'"),
        (["debezium", "--only", "flink"], "unknown names ['flink']; known: debezium, JSON; "),
        (["debezium", "--changes", "3050"], "--changes is a multiple of 100, 3000 or more"),
        (["debezium", "--changes", "2900"], "--changes is a multiple of 100, 3000 or more"),
    ],
)
def test_a_wrong_option_is_refused(capsys, arguments, complaint):
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)

    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_debeziums_settings_name_the_simulator_and_the_time_before_the_backlog(tmp_path):
    parts = PeerParts(tmp_path / "parts")
    made = connect_program(
        Java(Path("/java"), 17),
        parts,
        tmp_path / "run",
        name="debezium-0",
        bootstrap_servers="127.0.0.1:9092",
        database=DATABASE,
        start=START,
        converter=avro("http://127.0.0.1:8080/apis/ccompat/v7"),
    )

    worker, connector = (
        dict(line.split("=", 1) for line in Path(one).read_text().splitlines())
        for one in made.command[-2:]
    )
    assert connector["gcp.spanner.start.time"] == START
    assert connector["gcp.spanner.database.id"] == "peers"
    assert connector["connector.spanner.sync.kafka.bootstrap.servers"] == "127.0.0.1:9092"
    assert worker["plugin.path"] == f"{parts.root}/debezium,{parts.root}/avro"
    assert worker["key.converter"] == worker["value.converter"]
    assert worker["key.converter.apicurio.registry.url"].endswith("8080/apis/registry/v2")
    assert made.environ["SPANNER_EMULATOR_HOST"] == DATABASE.address


@pytest.mark.parametrize(("is_accelerated", "switch"), [(True, ""), (False, "off")])
def test_a_worker_runs_with_or_without_the_accelerator(tmp_path, is_accelerated, switch):
    stack = SimpleNamespace(bootstrap_servers="127.0.0.1:9092", registry_url="the registry")
    made = worker_program(
        stack,
        tmp_path / "run",
        prefix="tidegate-0",
        database=DATABASE,
        start=START,
        topic_partitions=6,
        is_accelerated=is_accelerated,
        settings=AS_DEBEZIUM,
    )

    flags = dict(zip(made.command[4::2], made.command[5::2], strict=True))
    assert flags["--start"] == START
    assert flags["--value-format"] == "json"
    assert made.environ["TIDEGATE_ACCELERATOR"] == switch

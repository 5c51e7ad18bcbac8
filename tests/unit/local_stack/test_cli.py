"""The commands: settings, what is printed where, exit codes, and what data is kept."""

from __future__ import annotations

import io
import shlex
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from tidegate.local_stack import cli, errors
from tidegate.local_stack.commands import up as module
from tidegate.local_stack.commands.show import changelog_rows, mirror_rows, rows_table, wait_for_key
from tidegate.local_stack.commands.up import (
    Sample,
    UpFolder,
    keep_up,
    sample_snippet,
    up_command,
)
from tidegate.local_stack.config import LocalStackConfig, load_config
from tidegate.local_stack.demo.bank import STREAM
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.errors import LocalStackError, PartFailedError
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig

# up


SAMPLE = Sample(
    bootstrap_servers="k:1",
    registry_url="http://r:2",
    spanner_address="s:3",
    control_address="c:4",
    database=DatabaseName(address="s:3"),
    output=Path("/somewhere/output"),
    producer_file=Path("/some where/producer.toml"),
    consumer_file=Path("/some where/consumer.toml"),
    audit_file=Path("/some where/audit.json"),
    java_home=Path("/some java"),
)


def test_all_that_is_printed_can_be_pasted_into_a_shell(tmp_path: Path):
    lines = SAMPLE.lines()
    for line in (
        "export TIDEGATE_KAFKA=k:1",
        "export TIDEGATE_REGISTRY=http://r:2",
        "export SPANNER_EMULATOR_HOST=s:3",
        "export TIDEGATE_SIMULATOR_CONTROL=c:4",
        "# mirrors get new releases every 2 s (mirror_interval_ms)",
    ):
        assert line in lines
    more = module._programs(SAMPLE, tmp_path, {}).more
    assert more["TIDEGATE_CONSUMER_MIRROR_INTERVAL_MS"] == "2000"
    script = "\n".join(lines)
    done = subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=30)
    assert done.returncode == 0


def test_commands_that_are_printed_need_no_further_flag():
    lines = [line for line in SAMPLE.lines() if " --config " in line]
    assert lines == SAMPLE.commands()
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        variables = [word for word in words if word.partition("=")[0].isupper()]
        python, *rest, file = words[len(variables) :]
        assert python == sys.executable
        # As the running consumer: its Java may not be on the path of another terminal.
        java = ["JAVA_HOME=/some java", "SPARK_LOCAL_IP=127.0.0.1"]
        assert variables == (java if rest[1] == "tidegate.spark_consumer" else [])
        assert rest[0] == "-m"
        assert rest[1] in {"tidegate.producer", "tidegate.spark_consumer"}
        assert rest[-1] == "--config"
        name = "producer" if rest[1] == "tidegate.producer" else "consumer"
        assert file == f"/some where/{name}.toml"


def test_the_snippet_is_python_that_writes_one_row():
    lines = sample_snippet(SAMPLE.database, output=SAMPLE.output)
    begin = next(at for at, line in enumerate(lines) if line.endswith("<<'END'"))
    program = "\n".join(lines[begin + 1 : lines.index("END")])
    compile(program, "snippet", "exec")
    assert "insert_or_update" in program
    python, *_, key = shlex.split("\n".join(lines[-2:]))
    assert (python, key) == (sys.executable, "my-account")


def test_folders_with_a_space_are_one_word_to_the_shell(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my python/bin/python")
    lines = sample_snippet(SAMPLE.database, output=Path("/some where/output"))
    (started,) = (line for line in lines if line.endswith("<<'END'"))
    assert shlex.split(started)[0] == "/my python/bin/python"
    python, *words = shlex.split("\n".join(lines[-2:]))
    assert python == "/my python/bin/python"
    assert words[words.index("--output") + 1] == "/some where/output"


def test_output_is_found_once_the_first_start_is_complete_and_one_has_it_at_a_time(tmp_path: Path):
    folder = UpFolder(tmp_path)
    with pytest.raises(ConfigError, match="has no output"):
        _ = folder.output
    with folder.owned(fresh=False):
        with (
            pytest.raises(ConfigError, match="in use by another"),
            UpFolder(tmp_path).owned(fresh=False),
        ):
            pass
        folder.path.mkdir()
        folder.mark_created()
    with UpFolder(tmp_path).owned(fresh=False):
        assert UpFolder(tmp_path).output == tmp_path / "up" / "output"


def test_an_error_of_the_same_kind_while_the_folder_is_held_keeps_its_cause(tmp_path: Path):
    """A pipe that does not block raises it when its reader is slow."""
    full = "write could not complete without blocking"
    with pytest.raises(BlockingIOError, match=full), UpFolder(tmp_path).owned(fresh=False):
        raise BlockingIOError(11, full)


class Stack:
    bootstrap_servers = spanner_address = control_address = "here:1"
    registry_url = "http://here:1"
    keeps_databases: ClassVar[list[bool]] = []
    ports: ClassVar[list[list[int]]] = []

    def __init__(
        self, config: Any, report: Any, *, keeps_databases: bool, is_lasting: bool
    ) -> None:
        assert is_lasting
        self.folder = config.data_dir
        names = ("kafka_port", "registry_port", "spanner_port", "control_port")
        self.chosen = [getattr(config, name) for name in names]
        self.keeps_databases.append(keeps_databases)

    def __enter__(self) -> Self:
        self.ports.append(self.chosen)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "data").open("a") as data:
            data.write("x")
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace everything that takes a real part; remember what was done."""
    done: list[str] = []
    batches = iter(range(100))
    monkeypatch.setattr(Stack, "keeps_databases", [])
    monkeypatch.setattr(Stack, "ports", [])
    for place, name, value in (
        (module, "LocalStack", Stack),
        (module, "find_java", lambda: SimpleNamespace(home=Path("/java"))),
        (module, "create_bank_database", lambda _: done.append("create")),
        (module, "open_accounts", lambda *_: 77),
        (Pipeline, "start_console", lambda _, **__: None),
        (Pipeline, "start_workers", lambda _, count, **__: done.append(f"{count} workers")),
        (Pipeline, "start_consumer", lambda _: done.append("consumer")),
        (Pipeline, "wait_released", lambda _, us, **__: done.append(f"released {us}")),
        (Pipeline, "batches", lambda _: next(batches)),
        (Pipeline, "stop", lambda _: done.append("stop")),
    ):
        monkeypatch.setattr(place, name, value)
    return done


def once(folder: Path, *, fresh: bool = False, **ports: int) -> list[str]:
    """Run `up` until everything is up, then stop it; return what it printed."""
    stopping = threading.Event()
    stopping.set()
    lines: list[str] = []
    view = SimpleNamespace(
        hidden=nullcontext, stage=lambda _: None, detail=lambda _: None, event=lines.append
    )
    config = load_config(data_dir=folder, seed=1, **ports)
    keep_up(config, view=view, show=lines.append, stopping=stopping, fresh=fresh)
    return lines


FIRST = ["create", "2 workers", "consumer", "released 77", "stop"]


def data(folder: Path) -> str:
    return (folder / "up" / "data").read_text()


def test_data_is_kept_and_the_next_run_continues(story: list[str], tmp_path: Path):
    first, second = once(tmp_path), once(tmp_path)

    assert story == [*FIRST, "2 workers", "consumer", "stop"]
    assert "export SPANNER_EMULATOR_HOST=here:1" in first
    assert first[0].startswith("# console http://127.0.0.1:")
    assert first == second
    assert Stack.ports[0] == Stack.ports[1]
    assert len({0, *Stack.ports[0]}) == 5
    assert f"# output {UpFolder(tmp_path).output}" in first
    assert data(tmp_path) == "xx"
    folder = tmp_path / "up"
    producer = ProducerConfig.load(folder / "producer.toml")
    assert producer.bootstrap_servers == "here:1"
    assert producer.plaintext_host == "here:1"
    assert producer.change_stream == STREAM
    consumer = ConsumerConfig.load(folder / "consumer.toml")
    assert consumer.output == str(UpFolder(tmp_path).output)
    assert consumer.checkpoint == str(folder / "checkpoint")
    assert (producer.prefix, consumer.prefix) == ("bank", "bank")
    assert Stack.keeps_databases == [True, True]


def test_fresh_starts_from_nothing(story: list[str], tmp_path: Path):
    once(tmp_path)
    once(tmp_path, fresh=True)
    assert story == [*FIRST, *FIRST]
    assert data(tmp_path) == "x"


def test_a_port_of_the_last_start_that_is_taken_is_replaced_and_this_is_said(
    story: list[str], tmp_path: Path
):
    once(tmp_path)
    kafka, *others = Stack.ports[0]
    with socket.create_server(("127.0.0.1", kafka)):
        said, *_ = once(tmp_path)
    assert said == f"port {kafka} of the last start is taken: kafka_port is another one"
    assert Stack.ports[1][0] not in {0, kafka}
    assert Stack.ports[1][1:] == others
    once(tmp_path)
    assert Stack.ports[2] == Stack.ports[1]


def test_a_port_that_is_asked_for_comes_before_that_of_the_last_start(
    story: list[str], tmp_path: Path
):
    once(tmp_path)
    kafka, registry, *others = Stack.ports[0]
    once(tmp_path, registry_port=kafka)
    assert Stack.ports[1][0] not in {0, kafka, registry}
    assert Stack.ports[1][1:] == [kafka, *others]
    (tmp_path / "up" / "ports.json").write_text('{"kafka')
    once(tmp_path)
    assert 0 not in Stack.ports[2]


def test_what_killed_programs_left_is_removed_at_the_next_start(story: list[str], tmp_path: Path):
    once(tmp_path)
    left = tmp_path / "up" / "programs" / "consumer" / "tmp" / "spark-1"
    left.mkdir(parents=True)
    once(tmp_path)
    assert not left.exists()


def test_the_command_that_continues_names_its_data_folder(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    up = [sys.executable, "-m", "tidegate.local_stack", "up"]
    assert shlex.split(up_command(Path(".tidegate"))) == up
    other = [*up, "--data-dir", str(tmp_path / "some where"), "--fresh"]
    assert shlex.split(up_command(Path("some where"), "--fresh")) == other


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Pipeline, name, fail)


def test_a_first_start_that_did_not_complete_is_not_continued(
    story: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        failing(patch, "wait_released", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            once(tmp_path)
    once(tmp_path)

    assert story == [*FIRST[:3], "stop", *FIRST]
    assert data(tmp_path) == "x"
    failing(monkeypatch, "start_workers", PartFailedError("w1 ended by itself"))
    with pytest.raises(PartFailedError, match=r"w1 ended by itself.* up --data-dir .* --fresh"):
        once(tmp_path)


# cli


DEADLINE_S = 60


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "tidegate.local_stack", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environ},
    )


def test_help_names_the_commands():
    done = run("--help")
    assert done.returncode == 0
    assert [one for one in ("fetch", "up", "demo", "show") if one not in done.stdout] == []
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "environ", "text"),
    [
        (
            ("demo", "--files-of", "oracle"),
            {},
            "--files-of oracle has no meaning with --scenario bank",
        ),
        (("demo", "--rows", "9"), {}, "--rows 9 has no meaning with --scenario bank"),
        (("up", "--kafka-port", "TAKEN"), {}, "kafka_port TAKEN"),
        (("up",), {"JAVA_HOME": "/no/such"}, "/no/such/bin/java does not exist"),
        (("up",), {"TIDEGATE_LOCAL_COLOUR": "red"}, "TIDEGATE_LOCAL_COLOUR"),
    ],
    ids=["files of", "rows", "port", "Java", "variable"],
)
def test_what_cannot_work_is_one_clear_line(tmp_path, arguments, environ, text):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        folder = ["--data-dir", str(tmp_path)] if arguments[0] == "up" else []
        words = [taken if word == "TAKEN" else word for word in arguments]
        done = run(*words, *folder, **environ)
    assert 2 == done.returncode
    lines = done.stderr.splitlines()
    assert sum(text.replace("TAKEN", taken) in line for line in lines) == 1
    assert "demo" not in arguments or "datastream" in done.stderr
    assert "Traceback" not in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_progress_outside_a_terminal_is_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(cli, "QUIET_REPORT_S", 1000.0)
    with cli.shown_progress("fetching") as report:
        report("first")
        report("second")
    said = capsys.readouterr().err
    assert "fetching: done" in said
    assert "second" not in said


def test_brackets_in_a_hint_are_no_markup(capsys, monkeypatch):
    def broken():
        raise ConfigError("pyspark is missing", hint="Type: pip install 'tidegate[local]'")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as caught:
        cli.main()

    assert 2 == caught.value.code
    assert "'tidegate[local]'" in capsys.readouterr().err


# show


@pytest.fixture
def output(tmp_path: Path) -> Path:
    rows = [{"AccountId": "a", "Balance": 1}, {"AccountId": "b", "Balance": None}]
    write_deltalake(str(tmp_path / "mirror" / "accounts"), pa.Table.from_pylist(rows))
    changes = [
        {
            "release": release,
            "ordinal": ordinal,
            "commit_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "mod_type": "INSERT",
            "key": {"AccountId": key},
            "new_values": {"AccountId": key, "Balance": 1},
            "offset": 7,
        }
        for release, ordinal, key in ((1, 0, "c"), (0, 1, "b"), (0, 0, "a"))
    ]
    write_deltalake(str(tmp_path / "changelog" / "accounts"), pa.Table.from_pylist(changes))
    return tmp_path


def test_a_mirror_is_its_rows_and_a_changelog_in_order_without_coordinates(output: Path):
    assert {row["AccountId"] for row in mirror_rows(output, "accounts")} == {"a", "b"}
    rows = changelog_rows(output, "accounts")
    assert [row["key"]["AccountId"] for row in rows] == ["a", "b", "c"]
    assert "offset" not in rows[0]


def test_what_is_shown_is_named_in_words(output: Path):
    lake = str(output)
    done = run("show", "accounts", "--output", lake)
    assert "accounts: 2 rows" in done.stdout
    done = run("show", "accounts", "--output", lake, "--changelog")
    assert "changes of accounts: 3 rows" in done.stdout
    assert "of `up`: accounts or ledger" in run("show", "--help").stdout


def test_a_missing_table_is_one_clear_error(output: Path):
    with pytest.raises(ConfigError, match=r"no mirror of table 'nobody'.*accounts"):
        mirror_rows(output, "nobody")
    with pytest.raises(ConfigError, match="none yet"):
        mirror_rows(output / "deeper", "nobody")


def test_a_table_whose_rows_are_not_in_its_files_alone_is_one_clear_error(output: Path):
    path = output / "mirror" / "parted"
    write_deltalake(path, pa.table({"k": [1], "p": ["x"]}), partition_by=["p"])
    with pytest.raises(ConfigError, match="partition columns"):
        mirror_rows(output, "parted")


def test_a_row_is_waited_for_by_key_and_a_long_wait_is_said_once(output: Path):
    answers: list[list[dict[str, Any]]] = [[], [], [], mirror_rows(output, "accounts")]
    said: list[str] = []
    found = wait_for_key(lambda: answers.pop(0), "a", deadline_s=30, say=said.append, say_after_s=0)
    assert [row["AccountId"] for row in found] == ["a"]
    assert answers == []
    assert said == ["waiting for key 'a', for 30 s at most: 0 rows so far"]
    # Changes are found by their key too.
    found = wait_for_key(lambda: changelog_rows(output, "accounts"), "c", deadline_s=0)
    assert [row["release"] for row in found] == [1]


def test_a_row_that_does_not_come_is_an_error(output: Path):
    with pytest.raises(PartFailedError, match="'a'"):
        wait_for_key(list, "a", deadline_s=0)
    with pytest.raises(PartFailedError, match=r"2 rows, .*\['[ab]', '[ab]'\]. Check the key"):
        wait_for_key(lambda: mirror_rows(output, "accounts"), "c", deadline_s=0)


def test_the_newest_rows_are_printed_and_null_unlike_text(output: Path):
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(rows_table(changelog_rows(output, "accounts"), title="t", rows_max=2))
    console.print(rows_table([{"Id": "x", "Note": None}], title="t", rows_max=2))
    text = console.export_text()
    assert "t: 1 rows, " not in text
    for shown in ("t: 3 rows, 2 of them here", "AccountId=c, Balance=1", "AccountId=b", "NULL"):
        assert shown in text
    assert "AccountId=a" not in text


# config


def test_a_flag_beats_the_environment_and_that_the_defaults(monkeypatch):
    config = load_config()
    assert Path(".tidegate") == config.data_dir
    assert 0 == config.kafka_port == config.registry_port == config.spanner_port
    monkeypatch.setenv("TIDEGATE_LOCAL_KAFKA_PORT", "9092")
    monkeypatch.setenv("TIDEGATE_LOCAL_SEED", "5")
    config = load_config(kafka_port=9093, seed=None)
    assert (9093, 5) == (config.kafka_port, config.seed)
    with pytest.raises(ConfigError, match="colour"):
        load_config(colour="red")
    fields = LocalStackConfig.model_fields
    assert [name for name, field in fields.items() if not field.description] == []


def test_what_an_operator_can_fix_ends_with_2_and_a_failed_part_with_1():
    codes = {name: getattr(errors, name).exit_code for name in errors.__all__}
    operators = dict.fromkeys(("JavaMissingError", "JavaUnsupportedError", "PortTakenError"), 2)
    parts = dict.fromkeys(("FetchError", "LocalStackError", "PartFailedError"), 1)
    assert codes == operators | parts
    assert all(issubclass(getattr(errors, name), LocalStackError) for name in parts)

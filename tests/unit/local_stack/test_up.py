"""What `up` prints, where it keeps its data, and when it continues with that of the last run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest

from tidegate.local_stack import up as module
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import STREAM
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.up import Sample, UpFolder, keep_up, sample_snippet
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig

SAMPLE = Sample(
    bootstrap_servers="k:1",
    registry_url="http://r:2",
    spanner_address="s:3",
    control_address="c:4",
    database=DatabaseName(address="s:3"),
    output=Path("/somewhere/output"),
    producer_file=Path("/some where/producer.toml"),
    consumer_file=Path("/some where/consumer.toml"),
)


def test_addresses_are_lines_for_a_shell():
    lines = SAMPLE.lines()

    assert "export TIDEGATE_KAFKA=k:1" in lines
    assert "export TIDEGATE_REGISTRY=http://r:2" in lines
    assert "export SPANNER_EMULATOR_HOST=s:3" in lines
    assert "export TIDEGATE_SIMULATOR_CONTROL=c:4" in lines


def test_a_mirror_follows_within_seconds_and_an_idle_consumer_rests(tmp_path: Path):
    assert "# mirrors get new releases every 2 s (mirror_interval_ms)" in SAMPLE.lines()
    more = module._programs(SAMPLE, tmp_path).more
    assert more["TIDEGATE_CONSUMER_MIRROR_INTERVAL_MS"] == "2000"
    assert more["TIDEGATE_CONSUMER_TRIGGER_INTERVAL_MS"] == "1000"


def test_all_that_is_printed_can_be_pasted_into_a_shell():
    script = "\n".join(SAMPLE.lines())
    done = subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=30)

    assert done.returncode == 0


def test_commands_that_are_printed_need_no_further_flag():
    lines = [line.removeprefix("# ") for line in SAMPLE.lines() if " --config " in line]
    assert lines == SAMPLE.commands()
    for line in lines:
        python, *rest, file = shlex.split(line)
        assert python == sys.executable
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
    assert "--output /somewhere/output" in "\n".join(lines)


def test_output_is_found_once_the_first_start_is_complete(tmp_path: Path):
    folder = UpFolder(tmp_path)
    with pytest.raises(ConfigError, match="has no output"):
        _ = folder.output

    with folder.owned(fresh=False):
        folder.path.mkdir()
        folder.mark_created()

    assert UpFolder(tmp_path).output == tmp_path / "up" / "output"


def test_two_at_once_is_an_error_and_one_after_the_other_is_not(tmp_path: Path):
    with (
        UpFolder(tmp_path).owned(fresh=False),
        pytest.raises(ConfigError, match="in use by another"),
        UpFolder(tmp_path).owned(fresh=False),
    ):
        pass
    with UpFolder(tmp_path).owned(fresh=False):
        pass


class Stack:
    bootstrap_servers = spanner_address = control_address = "here:1"
    registry_url = "http://here:1"
    keeps_databases: ClassVar[list[bool]] = []

    def __init__(
        self, config: Any, report: Any, *, keeps_databases: bool, is_lasting: bool
    ) -> None:
        assert is_lasting
        self.folder = config.data_dir
        self.keeps_databases.append(keeps_databases)

    def __enter__(self) -> Self:
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
    monkeypatch.setattr(module, "LocalStack", Stack)
    monkeypatch.setattr(module, "create_bank_database", lambda _: done.append("create"))
    monkeypatch.setattr(module, "open_accounts", lambda *_: 77)
    monkeypatch.setattr(
        Pipeline, "start_workers", lambda _, count, **__: done.append(f"{count} workers")
    )
    monkeypatch.setattr(Pipeline, "start_consumer", lambda _: done.append("consumer"))
    monkeypatch.setattr(
        Pipeline, "wait_released", lambda _, us, **__: done.append(f"released {us}")
    )
    monkeypatch.setattr(Pipeline, "batches", lambda _: next(batches))
    monkeypatch.setattr(Pipeline, "stop", lambda _: done.append("stop"))
    return done


def once(folder: Path, *, fresh: bool = False) -> list[str]:
    """Run `up` until everything is up, then stop it; return what it printed."""
    stopping = threading.Event()
    stopping.set()
    lines: list[str] = []
    view = SimpleNamespace(hidden=nullcontext, stage=lambda _: None, detail=lambda _: None)
    config = load_config(data_dir=folder, seed=1)
    keep_up(config, view=view, show=lines.append, stopping=stopping, fresh=fresh)
    return lines


FIRST = ["create", "2 workers", "consumer", "released 77", "stop"]


def data(folder: Path) -> str:
    return (folder / "up" / "data").read_text()


def test_data_is_kept_and_the_next_run_continues(story: list[str], tmp_path: Path):
    first, second = once(tmp_path), once(tmp_path)

    assert story == [*FIRST, "2 workers", "consumer", "stop"]
    assert "export SPANNER_EMULATOR_HOST=here:1" in first
    assert first == second
    assert f"# output {UpFolder(tmp_path).output}" in first
    assert data(tmp_path) == "xx"
    folder = tmp_path / "up"
    producer = ProducerConfig.load(folder / "producer.toml")
    assert producer.bootstrap_servers == "here:1"
    assert producer.emulator_host == "here:1"
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


def test_a_first_start_that_did_not_complete_is_not_continued(
    story: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "wait_released", interrupt)
        with pytest.raises(KeyboardInterrupt):
            once(tmp_path)
    once(tmp_path)

    assert story == [*FIRST[:3], "stop", *FIRST]
    assert data(tmp_path) == "x"


def test_kept_data_that_cannot_be_continued_names_fresh(
    story: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any, **__: Any) -> None:
        raise PartFailedError("w1 ended by itself")

    once(tmp_path)
    monkeypatch.setattr(Pipeline, "start_workers", fail)

    with pytest.raises(PartFailedError, match=r"w1 ended by itself.*up --fresh"):
        once(tmp_path)

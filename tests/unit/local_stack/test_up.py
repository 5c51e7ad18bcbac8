"""What `up` prints, where it lives, and that it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tidegate.local_stack import up as module
from tidegate.local_stack.bank_database import DatabaseName
from tidegate.local_stack.config import load_config
from tidegate.local_stack.pipeline import Pipeline
from tidegate.local_stack.up import Sample, keep_up, latest_output, sample_snippet
from tidegate.schemas.errors import ConfigError

SAMPLE = Sample(
    bootstrap_servers="k:1",
    registry_url="http://r:2",
    spanner_address="s:3",
    control_address="c:4",
    database=DatabaseName(address="s:3"),
    output=Path("/somewhere/output"),
)


def test_addresses_are_lines_for_a_shell():
    lines = SAMPLE.lines()

    assert "export TIDEGATE_KAFKA=k:1" in lines
    assert "export TIDEGATE_REGISTRY=http://r:2" in lines
    assert "export SPANNER_EMULATOR_HOST=s:3" in lines
    assert "export TIDEGATE_SIMULATOR_CONTROL=c:4" in lines


def test_all_that_is_printed_can_be_pasted_into_a_shell():
    script = "\n".join(SAMPLE.lines())
    done = subprocess.run(["sh", "-n"], input=script, text=True, check=False, timeout=30)

    assert done.returncode == 0


def test_the_snippet_is_python_that_writes_one_row():
    lines = sample_snippet(SAMPLE.database, output=SAMPLE.output)
    begin = next(at for at, line in enumerate(lines) if line.endswith("<<'END'"))
    program = "\n".join(lines[begin + 1 : lines.index("END")])

    compile(program, "snippet", "exec")
    assert "insert_or_update" in program
    assert "--output /somewhere/output" in "\n".join(lines)


def test_the_newest_output_is_found(tmp_path: Path):
    (tmp_path / "latest.json").write_text(json.dumps({"output": "up-1/output"}))

    assert latest_output(tmp_path) == tmp_path / "up-1" / "output"
    with pytest.raises(ConfigError, match="holds no output"):
        latest_output(tmp_path / "other")


class Stack:
    bootstrap_servers = registry_url = spanner_address = control_address = "here:1"

    def __init__(self, config: Any, report: Any) -> None:
        self.folder = config.data_dir

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        (self.folder / "data").write_text("x")
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace everything that takes a real part; remember what was done."""
    done: list[str] = []
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
    monkeypatch.setattr(Pipeline, "stop", lambda _: done.append("stop"))
    return done


@pytest.mark.parametrize("keep", [False, True])
def test_a_run_has_a_folder_of_its_own_and_removes_it(story: list[str], tmp_path: Path, keep: bool):
    stopping = threading.Event()
    stopping.set()
    lines: list[str] = []
    view = SimpleNamespace(stage=lambda _: None, detail=lambda _: None)
    keep_up(
        load_config(data_dir=tmp_path, seed=1),
        view=view,
        show=lines.append,
        stopping=stopping,
        keep=keep,
    )

    assert story == ["create", "2 workers", "consumer", "released 77", "stop"]
    assert "export SPANNER_EMULATOR_HOST=here:1" in lines
    assert bool(list(tmp_path.iterdir())) == keep
    if keep:
        assert latest_output(tmp_path).parent.is_dir()

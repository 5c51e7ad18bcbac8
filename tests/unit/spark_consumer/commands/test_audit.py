"""`audit`: what it prints, how it ends, and what it needs before Spark starts."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
import structlog

from tidegate.program.java import QUICK_START
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.commands import audit as audit_command
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.proof import AuditReport, Fault, Findings, Mismatch, Verdict

SETTINGS = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}
NOTHING = Findings({}, (), 0)
TOKEN = "a[red]token"
MISMATCH = Mismatch(
    "stream partition",
    {"topic": "bank.a", "origin": 7, "token": TOKEN},
    Fault.MISSING,
    {"mods": 2},
    {"mods": 1},
)


def report(stream_partitions):
    return AuditReport(
        release=3, through_us=40, complete_from_us=None, changes=7, late_changes=0,
        stream_partitions=stream_partitions, transactions=NOTHING, releases=NOTHING, tables=NOTHING,
    )  # fmt: skip


PROVED = report(Findings({Verdict.PROVED: 5, Verdict.OPEN: 2}, (), 0))
WRONG = report(Findings({Verdict.MISMATCHED: 1}, (MISMATCH,), 4))


@pytest.fixture
def invoke(monkeypatch, capsys):
    def run(outcome, *arguments):
        def audit(config, *, step):
            step("Spark")
            assert config.prefix == "bank"
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(audit_command, "audit", audit)
        flags = [
            part
            for name, value in SETTINGS.items()
            for part in (f"--{name.replace('_', '-')}", value)
        ]
        monkeypatch.setattr(sys, "argv", ["tidegate-consumer", "audit", *flags, *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr()

    yield run
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("outcome", "code"), [(PROVED, 0), (WRONG, 1), (ConfigError("no output"), 2)]
)
def test_the_exit_code_says_whether_everything_is_proved(invoke, outcome, code):
    assert invoke(outcome)[0] == code
    assert invoke(outcome, "--json")[0] == code


def test_json_is_the_whole_report_alone(invoke):
    _, printed = invoke(WRONG, "--json")
    assert json.loads(printed.out) == WRONG.content()
    assert json.loads(printed.out)["mismatches"][0]["token"] == TOKEN


def test_people_read_the_counts_and_a_table_of_mismatches(invoke):
    _, printed = invoke(PROVED)
    assert "proved: 5" in printed.out
    assert "mismatches" not in printed.out
    _, printed = invoke(WRONG)
    assert "NOT proved" in printed.out
    for text in (f"token: {TOKEN}", str(Fault.MISSING), "mods: 2", "mods: 1", "3 more"):
        assert text in printed.out, text


def test_what_the_stream_lacks_is_refused_before_spark_starts(monkeypatch):
    def refuse(_config):
        raise ConfigError("there is no progress topic")

    monkeypatch.setattr(audit_command, "require_spark", lambda **_: None)
    monkeypatch.setattr(audit_command, "require_release", lambda _: None)
    monkeypatch.setattr(audit_command, "require_stream", refuse)
    steps = []
    with pytest.raises(ConfigError, match="no progress topic"):
        audit_command.audit(ConsumerConfig.load(None, **SETTINGS), step=steps.append)
    assert steps == ["Kafka and schema registry"]


def test_each_step_is_a_line_where_there_is_no_terminal(invoke):
    code, printed = invoke(PROVED, "--json")
    assert code == 0
    (line,) = printed.err.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["step"]) == ("audit step", "Spark")


def test_a_small_output_gets_a_java_that_starts_fast(tmp_path):
    def options(**more):
        config = ConsumerConfig.load(None, **{**SETTINGS, "output": str(tmp_path), **more})
        return audit_command._for_its_size(config).java_options

    file = tmp_path / "changelog" / "a" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"small")
    gone = file.with_name("part-1.parquet")  # as one that a vacuum deletes in between
    gone.symlink_to(tmp_path / "nothing")
    assert options() == shlex.join(QUICK_START)
    assert options(java_options="-Xmx2g") == "-Xmx2g"
    assert options(output="s3a://lake/orders") == ""
    with file.open("wb") as large:
        large.truncate(65 * 1024**2)
    assert options() == ""

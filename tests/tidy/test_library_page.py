"""The programs of docs/library.md run in order, as in a notebook, against the real API.

Spark, Kafka and the registry are stand-ins that have the names and signatures of the real classes;
the builder and its settings are the real ones.  tests/integration/test_bank.py runs the first
program on a real stack.
"""

from __future__ import annotations

import inspect
import re
from unittest.mock import create_autospec

import pandas as pd
import pytest
import structlog
from pyspark.sql import DataFrame, SparkSession

import tidegate
from tests.tidy.printed_commands import REPOSITORY, blocks
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.proof import AuditReport, Findings
from tidegate.spark_consumer.library import builder
from tidegate.spark_consumer.library.builder import StreamBuilder
from tidegate.spark_consumer.library.query import TidegateQuery
from tidegate.spark_consumer.library.settings import _WITHOUT_EFFECT
from tidegate.spark_consumer.sinks.delta.as_of import TablesAsOf
from tidegate.spark_consumer.sinks.function import ReleasedChanges

PAGE = (REPOSITORY / "docs/library.md").read_text()
PROGRAMS = [block for block in blocks("python") if block.page == "docs/library.md"]
NOTHING = Findings({}, (), 0)
REPORT = AuditReport(
    release=3, through_us=40, complete_from_us=None, changes=7, late_changes=0,
    stream_partitions=NOTHING, transactions=NOTHING, releases=NOTHING, tables=NOTHING,
)  # fmt: skip
RELEASES = pd.DataFrame({"release": [0], "through": [pd.NaT], "lag_s": [1.5], "rows": [7]})


class Release:
    """Has the attributes of `ReleasedChanges`, which has them from its release."""

    number, query_id, rows = 4, "q", 2
    after = through = None
    tables = ("accounts", "ledger")

    def table(self, name):
        return create_autospec(DataFrame, instance=True)


@pytest.fixture
def notebook(monkeypatch):
    """The names of a notebook; `queries` are the settings that queries were started with."""
    spark = create_autospec(SparkSession, instance=True)
    spark.streams.active = []
    queries = []

    def build(_spark, config, *, sinks, query_name):
        queries.append((config, sinks, query_name))

    for name in ("require_session", "require_stream", "require_turn", "Storage"):
        monkeypatch.setattr(builder, name, create_autospec(getattr(builder, name)))
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    monkeypatch.setattr(builder, "build_query", build)
    monkeypatch.setattr(
        builder, "TidegateQuery", lambda _: create_autospec(TidegateQuery, instance=True)
    )
    frame = create_autospec(DataFrame, instance=True)
    returned = {
        "session": spark,
        "as_of": TablesAsOf({"accounts": frame, "ledger": frame}),
        "audit": REPORT,
        "releases": RELEASES,
        "status": {"watermark": None, "releases": 0, "waiting_changes": 0},
    }
    for name, value in returned.items():
        spec = create_autospec(getattr(tidegate, name), return_value=value)
        monkeypatch.setattr(tidegate, name, spec, raising=False)
    return {"queries": queries}


def test_all_programs_run_in_order(notebook, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for program in PROGRAMS:
        exec(compile(program.content, f"docs/library.md:{program.line}", "exec"), names)

    ((config, sinks, query_name),) = notebook["queries"]
    assert (config.output, config.sink_names) == ("/lake", ("changelog", "mirror"))
    assert [sink.name for sink in sinks] == ["function"]
    assert query_name == "tidegate-bank"
    assert {"tables", "report", "figures", "building"} <= names.keys()
    assert names["building"]._options["catalog_schema"] == "lake.bank"
    assert (tmp_path / "releases.png").read_bytes().startswith(b"\x89PNG")
    *functions, own = names["building"]._own.values()
    for sink in (*sinks, *functions):
        sink._function(create_autospec(DataFrame, instance=True), Release())
    assert (own.name, [one.name for one in functions]) == ("json-lines", ["feed", "batches"])
    assert "True" in capsys.readouterr().out


def test_the_first_program_is_short():
    lines = [line for line in PROGRAMS[0].content.splitlines() if line.strip(" )(")]

    assert len(lines) <= 11


def test_the_stand_in_for_a_release_has_what_a_release_has():
    real = set(ReleasedChanges.__init__.__code__.co_names) | set(vars(ReleasedChanges))

    assert {name for name in vars(Release) if name[0] != "_"} <= real


def test_every_method_and_argument_of_the_page_is_one_of_the_builder():
    (section,) = re.findall(r"^## Building a query\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    methods = {}
    for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", cell):
            methods.setdefault(name, set()).update(re.findall(r"(\w+)=", arguments))
    public = {name for name in vars(StreamBuilder) if name[0] != "_"}
    assert methods.keys() == public
    for name, arguments in methods.items():
        assert arguments <= set(inspect.signature(getattr(StreamBuilder, name)).parameters), name


def test_the_settings_that_are_refused_are_those_of_the_page():
    (line,) = re.findall(r"^- (.*) have no effect on a query", PAGE, re.MULTILINE)
    assert (
        set(re.findall(r"`(\w+)`", line))
        == set(_WITHOUT_EFFECT)
        <= set(ConsumerConfig.model_fields)
    )

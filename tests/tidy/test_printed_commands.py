"""Every command and program that README, docs and the stored notebook print works as printed.

Programs of docs/library.md run in order, as in a notebook: Spark, Kafka and the registry are
stand-ins that have the names and signatures of the real classes; the builder and its settings are
the real ones.  Integration tests run the first program and the notebook on a real stack.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import create_autospec

import nbformat
import pandas as pd
import promql_parser
import pytest
import structlog
import yaml
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import tidegate
from spanner_simulator import Simulator
from tests.tidy.chart import RENDERED
from tests.tidy.printed_commands import PAGES, REPOSITORY, Block, blocks, blocks_in
from tidegate.producer.config import ProducerConfig
from tidegate.producer.observation.metrics import METRICS as PRODUCER_METRICS
from tidegate.program.spark_versions import SPARK_LINES, installed_line
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.proof import AuditReport, Findings
from tidegate.spark_consumer.library import builder
from tidegate.spark_consumer.library.builder import StreamBuilder
from tidegate.spark_consumer.library.query import TidegateQuery
from tidegate.spark_consumer.library.settings import _WITHOUT_EFFECT
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.delta.as_of import TablesAsOf
from tidegate.spark_consumer.sinks.function import ReleasedChanges
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


SIMULATOR = tomllib.loads((REPOSITORY / "spanner_simulator" / "pyproject.toml").read_text())


EXTRAS = {
    "tidegate": PROJECT["optional-dependencies"],
    SIMULATOR["project"]["name"]: SIMULATOR["project"]["optional-dependencies"],
}


LOCKED = frozenset(
    re.findall(r"^(\S+==\S+)", (REPOSITORY / "requirements/dev.txt").read_text(), re.MULTILINE)
)


TARGETS = frozenset(
    re.findall(r'^    "([a-z-]+)": "', (REPOSITORY / "dev").read_text(), re.MULTILINE)
)


# Programs of the machine: the tests do not check their options.
FOREIGN = frozenset({"aws", "cd", "curl", "docker", "export", "gcloud", "git", "spark-submit"})


# Options of make that ./dev knows under another name.
VARIABLES = frozenset({"ARGS", "MINUTES", "SEED", "SEEDS"})


SHELL = blocks("sh")


PYTHON = blocks("python")


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def faults(command: list[str]) -> list[str]:
    """Return what is wrong with a command, without running it."""
    program, *arguments = command
    program = program.removeprefix(".venv/bin/")
    match program:
        case "./dev" | "make":
            return _dev_faults(arguments)
        case "pip":
            return _pip_faults(arguments)
        case "pytest":
            return _path_faults(arguments)
        case "python" if arguments[:1] == ["-m"]:
            return [] if find_spec(arguments[1]) else [f"no module {arguments[1]}"]
        case "python":
            return _path_faults(arguments)
        case _ if program in PROJECT["scripts"]:
            return _program_faults(program, arguments)
        case _ if program in FOREIGN or program.partition("=")[0].isupper():
            return []
        case _:
            return [f"unknown program {program}: let {__name__} check it"]


def _dev_faults(arguments: list[str]) -> list[str]:
    targets = [argument for argument in arguments if argument[0] != "-" and "=" not in argument][:1]
    variables = [
        argument.partition("=")[0]
        for argument in arguments
        if "=" in argument and argument[0] != "-"
    ]
    return [
        *(f"no target {target}" for target in targets if target not in TARGETS),
        *(f"no variable {name}" for name in variables if name not in VARIABLES),
    ]


def _pip_faults(arguments: list[str]) -> list[str]:
    found = []
    for wanted in arguments[1:]:
        name, _, extras = wanted.rstrip("]").partition("[")
        known = EXTRAS.get("tidegate" if name == "." else name)
        if wanted[0] == "-" or (REPOSITORY / wanted / "pyproject.toml").exists():
            continue
        if "==" in wanted:
            found += [] if wanted in LOCKED else [f"{wanted} is not the lock's version"]
            continue
        if known is None:
            found.append(f"no distribution {name} of this repository")
        else:
            found += [f"{name} has no extra {e}" for e in extras.split(",") if e and e not in known]
    return found


def _path_faults(arguments: list[str]) -> list[str]:
    paths = [argument.partition("::")[0] for argument in arguments if "/" in argument]
    return [f"no file {path}" for path in paths if not (REPOSITORY / path).exists()]


def _program_faults(program: str, arguments: list[str]) -> list[str]:
    """Let the real command line read the options; `--help` keeps it from doing more."""
    module = importlib.import_module(PROJECT["scripts"][program].partition(":")[0])
    result = CliRunner().invoke(module.app, [*arguments, "--help"])
    return [] if result.exit_code == 0 else [result.output]


def test_every_printed_command_is_one():
    found = {
        f"{name_of(block)} {' '.join(command)}": wrong
        for block in SHELL
        for command in block.commands()
        if (wrong := faults(command))
    }
    assert found == {}
    assert {"README.md", "CONTRIBUTING.md"} <= {block.page for block in SHELL}


def test_every_printed_program_compiles_and_those_that_are_marked_run(tmp_path):
    for block in PYTHON:
        compile(block.content, name_of(block), "exec")
    marked = [block for block in PYTHON if block.runs]
    assert marked
    for block in marked:
        done = subprocess.run(
            [sys.executable, "-c", block.content],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (name_of(block), done.stderr)


def test_settings_manifests_and_queries_can_be_parsed():
    for block in blocks("toml"):
        tomllib.loads(block.content)
    for block in blocks("yaml"):
        assert [one for one in yaml.safe_load_all(block.content) if one], name_of(block)
    for block in blocks("promql"):
        promql_parser.parse(block.content)


def test_the_scaled_object_scales_the_charts_workers_by_metrics_that_there_are():
    (block,) = [one for one in blocks("yaml") if one.page == "docs/how-to/keda.md"]
    (scaled,) = yaml.safe_load_all(block.content)
    (workers,) = [
        one
        for one in yaml.safe_load_all(RENDERED.read_text())
        if one and one["kind"] == "StatefulSet"
    ]
    target = {**scaled["spec"]["scaleTargetRef"]}
    assert target.pop("name") == workers["metadata"]["name"]
    assert target == {"apiVersion": workers["apiVersion"], "kind": workers["kind"]}
    assert scaled["spec"]["maxReplicaCount"] <= ProducerConfig.model_fields["slots"].default
    known = {f"tidegate_producer_{one.name}" for one in PRODUCER_METRICS}
    for trigger in scaled["spec"]["triggers"]:
        query = trigger["metadata"]["query"]
        promql_parser.parse(query)
        (job,) = set(re.findall(r'job=~"([^"]+)"', query))
        assert re.fullmatch(job, workers["metadata"]["name"])
        assert set(re.findall(r"tidegate_producer_\w+", query)) <= known


def test_the_sources_of_dbt_name_columns_that_the_tables_have():
    block, *_ = [one for one in blocks("yaml") if one.page == "docs/how-to/dbt.md"]
    sources = yaml.safe_load(block.content)["sources"]
    query = sources[0]["config"]["loaded_at_query"]
    (column,) = set(re.findall(r"commit_\w+", query))
    assert {column, "release"} <= set(CHANGE_COLUMNS)
    names = HistoryColumns().names
    assert all(name in sources[1]["tables"][0]["description"] for name in names[:2])


@pytest.mark.parametrize("page", ["docs/spanner.md", "docs/start/your-own.md"])
def test_a_database_takes_the_printed_statements(page):
    """A change stream may not have the name of a table, for example."""
    tables = [
        f"CREATE TABLE {name} (OrderId INT64) PRIMARY KEY (OrderId)"
        for name in ("Orders", "OrderLines")
    ]
    text = "".join(block.content for block in blocks("sql") if block.page == page)
    printed = [statement for one in text.split(";") if (statement := one.strip())]
    assert printed
    with Simulator() as spanner:
        spanner.create_database("shop", ddl=[*tables, *printed])


def test_every_block_names_its_language():
    """A block without one is not checked."""
    without = []
    for page in PAGES:
        fences = re.findall(r"^ *```(\w*)$", page.read_text(), re.MULTILINE)
        without += [
            (page.name, n) for n, language in enumerate(fences) if bool(language) == bool(n % 2)
        ]
    assert without == []


def test_hadoop_has_the_version_of_sparks_own():
    """`s3a://` needs the same version of all of Hadoop."""
    pyspark = pytest.importorskip("pyspark")
    jars = Path(pyspark.__file__).parent / "jars"
    assert [jar.name for jar in jars.glob("hadoop-client-api-*.jar")] == [
        f"hadoop-client-api-{installed_line().hadoop}.jar"
    ]
    printed = {
        version
        for page in PAGES
        for version in re.findall(r"hadoop-aws:([\d.]+\d)", page.read_text())
    }
    assert printed <= {line.hadoop for line in SPARK_LINES}


@pytest.mark.parametrize(
    "line",
    [
        "./dev nonsense",
        "make sim SEEDING=3",
        'pip install "tidegate[nonsense]"',
        'pip install ".[nonsense]"',
        "pip install nonsense",
        "pip install delta-spark==1.0.0",
        "pytest tests/nonsense.py",
        "python -m tidegate_nonsense",
        "python docs/nonsense.py",
        "nonsense --help",
        "tidegate-producer nonsense",
        "tidegate-producer run --nonsense 3",
        ".venv/bin/tidegate-local up --nonsense",
    ],
)
def test_a_wrong_command_is_found(line):
    (block,) = blocks_in(f"```sh\n{line}  # a comment\n```\n", page="x.md")

    assert [faults(command) for command in block.commands()] != [[]]


def test_blocks_are_found_with_their_mark_and_line_and_in_a_list():
    shell = "<!-- runs -->\n```sh\nx --y \\\n  z   # c\n```\n"
    text = f"a\n\n{shell}\n1. Do:\n    ```python\n    1\n    ```\n"
    first, second = blocks_in(text, page="x.md")

    assert (first.line, first.language, first.runs) == (3, "sh", True)
    assert first.commands() == [["x", "--y", "z"]]
    assert (second.language, second.runs, second.content) == ("python", False, "1\n")


# ---------------------------------------------------------------- docs/library.md


LIBRARY = (REPOSITORY / "docs/library.md").read_text()
PROGRAMS = [block for block in PYTHON if block.page == "docs/library.md"]


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
    assert (own.name, [function.name for function in functions]) == (
        "json-lines",
        ["feed", "batches"],
    )
    assert "True" in capsys.readouterr().out


def test_the_stand_in_for_a_release_has_what_a_release_has():
    real = set(ReleasedChanges.__init__.__code__.co_names) | set(dir(ReleasedChanges))

    assert {name for name in vars(Release) if name[0] != "_"} <= real


def test_the_page_has_the_builders_methods_and_the_settings_that_are_refused():
    (section,) = re.findall(r"^## Building a query\n(.*?)^## ", LIBRARY, re.MULTILINE | re.DOTALL)
    methods = {}
    for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", cell):
            methods.setdefault(name, set()).update(re.findall(r"(\w+)=", arguments))
    assert methods.keys() == public(StreamBuilder)
    for name, arguments in methods.items():
        assert arguments <= set(inspect.signature(getattr(StreamBuilder, name)).parameters), name
    (line,) = re.findall(r"^- (.*) have no effect on a query", LIBRARY, re.MULTILINE)
    refused = set(re.findall(r"`(\w+)`", line))
    assert refused == set(_WITHOUT_EFFECT) <= set(ConsumerConfig.model_fields)


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if name[0] != "_"}


# ---------------------------------------------------------------- the notebook


def test_the_notebook_is_whole_and_of_the_public_names():
    (path,) = (REPOSITORY / "docs" / "notebooks").glob("*.ipynb")
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [(cell.execution_count, cell.outputs) for cell in cells] == [(None, [])] * len(cells)
    for folder in (REPOSITORY, Path.home(), Path("/tmp")):
        assert f"{folder}/" not in path.read_text()

    used = {"tg": set(), "query": set()}
    for node in (one for cell in cells for one in ast.walk(ast.parse(cell.source))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
    assert {"session", "stream", "as_of", "audit", "releases", "plot_releases"} <= used["tg"]
    assert used["tg"] <= set(tidegate.__all__)
    assert {"status", "awaitRelease", "stop"} == used["query"] <= set(dir(TidegateQuery))

    (found,) = [cell.source for cell in cells if "tg.stream(" in cell.source]
    (query, *_) = ast.parse(found).body
    assert query.end_lineno - query.lineno < 10
    methods = {node.attr for node in ast.walk(query) if isinstance(node, ast.Attribute)}
    assert methods <= public(StreamBuilder) | {"stream"}

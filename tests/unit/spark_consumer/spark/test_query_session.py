"""Sessions of a query: their settings, what they need, and what reaches Spark of an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from py4j.protocol import Py4JError

from tests.unit.spark_consumer.commands.command_building import SETTINGS
from tidegate.local_stack.parts.jvm_parts import ivy_file
from tidegate.program.spark_versions import DELTA_PYTHON, SPARK_LINES, installed_line
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import SPARK_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.errors import RunStopped
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.spark import query_session, requirements
from tidegate.spark_consumer.spark import session as session_module
from tidegate.spark_consumer.spark.failures import BatchFailed, with_short_failures
from tidegate.spark_consumer.spark.gate_query import MetricsListener
from tidegate.spark_consumer.spark.query_session import STORED_AS, QuerySession
from tidegate.spark_consumer.spark.requirements import (
    require_iceberg,
    require_iceberg_package,
)
from tidegate.spark_consumer.spark.session import _Lines


# ---------------------------------------------------------------- the start
@pytest.mark.parametrize("jars", ["", "/a.jar"])
def test_a_start_that_fetches_packages_says_that_the_first_one_takes_minutes(monkeypatch, jars):
    """Its own lines are held back, so the first start looks as if it hung."""
    monkeypatch.setattr(session_module, "is_submitted", lambda: False)
    monkeypatch.setattr(session_module, "local_session", lambda **_: None)
    with structlog.testing.capture_logs() as lines:
        session_module.session_of(ConsumerConfig.load(None, **SETTINGS, jars=jars))
    (line,) = lines
    assert line["event"] == "Spark starts"
    assert line["packages"] == ("" if jars else SPARK_PACKAGES)
    hint = "the first start fetches the packages, which can take minutes"
    assert line.get("hint") == (None if jars else hint)


# ---------------------------------------------------------------- settings
DEFAULTS = "spark.databricks.delta.properties.defaults.appendOnly"

PROGRAM = {name: f"the program's {name}" for name in (*STORED_AS, DEFAULTS, "spark.kept")}


class Conf(dict):
    set = dict.__setitem__

    def unset(self, name):
        self.pop(name, None)

    @property
    def getAll(self):  # noqa: N802 - pyspark's name
        return dict(self)


class JavaMap(dict):
    equals = dict.__eq__


class JavaSession:
    def __init__(self, settings):
        self.settings = settings

    def conf(self):
        return SimpleNamespace(getAll=lambda: JavaMap(self.settings))

    def cloneSession(self):  # noqa: N802 - Spark's name
        return JavaSession(Conf(self.settings))


class Catalog:
    """As a copy of a program_session has it: with the default catalog, whatever was in use."""

    def __init__(self):
        self.name = "spark_catalog"

    def currentCatalog(self):  # noqa: N802 - pyspark's name
        return self.name


def program_session(settings=PROGRAM):
    conf = Conf(settings)
    java = JavaSession(conf)
    return SimpleNamespace(conf=conf, sparkContext=None, _jsparkSession=java, catalog=Catalog())


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    monkeypatch.setattr(
        query_session, "SparkSession", lambda _context, java: program_session(java.settings)
    )


def stored_as(conf):
    return {name: conf.get(name) for name in STORED_AS} == dict(STORED_AS)


def test_a_schema_without_a_catalog_is_one_of_the_programs_catalog():
    program = program_session()
    schemas = ("", "bank", "other.bank")
    assert tuple(map(QuerySession(program).whole_schema, schemas)) == schemas
    program.catalog.name = "lake"  # USE CATALOG lake
    found = QuerySession(program)
    assert list(map(found.whole_schema, schemas)) == ["", "lake.bank", "other.bank"]
    assert found.spark.catalog.name == "spark_catalog"


@pytest.mark.parametrize("settings", [PROGRAM, {}], ids=["all set", "none set"])
def test_batches_have_the_settings_and_the_programs_sinks_get_theirs_back(settings):
    found = QuerySession(program_session(), programs=["function"])
    own, program = SimpleNamespace(name="mirror"), SimpleNamespace(name="function")
    with found.settings_of(program):  # nothing is set before the first batch
        pass
    batches = program_session(settings)
    for _ in range(2):
        found.begin_batch(batches)
        assert stored_as(batches.conf)
        with found.settings_of(own):
            assert stored_as(batches.conf)
        with found.settings_of(program):
            assert batches.conf == settings
        assert stored_as(batches.conf)
        assert DEFAULTS not in batches.conf


def test_what_the_program_changes_after_the_start_reaches_both_copies_unless_it_is_pinned():
    program = program_session()
    found = QuerySession(program)
    batches = program_session(program.conf)
    batches.conf["spark.own"] = found.spark.conf["spark.own"] = "Spark's"
    found.begin_batch(batches)
    steps = [
        ("fs.s3a.secret.key", "first"),
        ("fs.s3a.secret.key", "second"),
        ("fs.azure.account.key", "first"),
        ("spark.kept", None),
        ("fs.s3a.secret.key", None),
    ]
    for name, value in steps:
        program.conf.pop(name) if value is None else program.conf.set(name, value)
        for _ in range(2):
            found.begin_batch(batches)
            for copy in (found.spark, batches):
                assert copy.conf.get(name) == value
                assert stored_as(copy.conf)
    later = [*STORED_AS, DEFAULTS, f"{DEFAULTS}2", "spark.own"]
    before = dict(found.spark.conf), dict(batches.conf)
    for name in later:
        program.conf[name] = "later"
    found.begin_batch(batches)
    assert (found.spark.conf, batches.conf) == before
    # What a sink sets in a copy stays when the program sets it later.
    found.spark.conf["spark.sql.shuffle.partitions"] = "1"
    program.conf["spark.sql.shuffle.partitions"] = "9"
    found.begin_batch(batches)
    copies = (found.spark.conf, batches.conf)
    assert [copy["spark.sql.shuffle.partitions"] for copy in copies] == ["1", "9"]


def test_what_changes_stored_values_is_set_in_copies_and_in_a_session_of_our_own():
    program = program_session()
    found = QuerySession(program)
    assert stored_as(found.spark.conf)
    assert DEFAULTS not in found.spark.conf
    assert found.spark.conf["spark.kept"] == PROGRAM["spark.kept"]
    assert program.conf == PROGRAM
    shared = DELTA_SESSION_SETTINGS.keys() & STORED_AS.keys()
    assert len(shared) > 2
    assert all(DELTA_SESSION_SETTINGS[name] == STORED_AS[name] for name in shared)


# ---------------------------------------------------------------- what Spark needs
REPOSITORY = Path(__file__).resolve().parents[4]
VERSION = f"{installed_line().minor}.1"


@pytest.fixture
def installed(monkeypatch):
    """Choose what is installed: modules, a Java, and whether spark-submit is at work."""

    def choose(*modules, java=True, submitted=False):
        def no_java():
            raise ConfigError("Spark needs Java 17 to 21")

        monkeypatch.setattr(requirements, "is_installed", modules.__contains__)
        monkeypatch.setattr(requirements, "require_java", (lambda: None) if java else no_java)
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        if submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    return choose


def refused(jars=""):
    with pytest.raises(ConfigError) as caught:
        requirements.require_spark(jars=jars)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_missing_is_a_line_that_says_what_to_type(installed):
    for modules, options, jars, text in (
        (("delta",), {}, "", 'pip install "tidegate[local]"'),
        (("pyspark",), {}, "", "pip install --no-deps delta-spark=="),
        (("pyspark", "delta"), {"java": False}, "", "Java 17 to 21"),
        (("pyspark", "delta"), {}, "/no/a.jar,https://host/b.jar", "(jars=['/no/a.jar'])"),
    ):
        installed(*modules, **options)
        assert text in refused(jars)


def test_what_is_complete_passes(installed, tmp_path):
    jar = tmp_path / "a.jar"
    jar.touch()
    installed("pyspark", "delta")
    requirements.require_spark(jars="")
    requirements.require_spark(jars=f"{jar},https://host/b.jar")
    # Under spark-submit Java and jars are the submitter's.
    installed("pyspark", "delta", java=False, submitted=True)
    requirements.require_spark(jars="/no/a.jar")


DELTA = {
    name: DELTA_SESSION_SETTINGS[name]
    for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
}
SOURCES = requirements._DATA_SOURCES
OF_ANOTHER = {"spark.sql.extensions": "com.other.sql.Extension"}
"""Settings of a distribution with a Delta of its own."""


class PySparkFault(Exception):
    """As Spark's, which has its stack trace below the first line."""


def session(*sources, settings=DELTA, version=VERSION, classes=(), fault=""):
    """A session with these data sources; `fault` is what Delta's statements end with."""
    utils = SimpleNamespace(Utils=SimpleNamespace(classIsLoadable=lambda name: name in classes))

    def look_up(name, conf):
        assert conf == "the session's"
        if name not in sources:
            raise Py4JError("DATA_SOURCE_NOT_FOUND")

    execution = SimpleNamespace(
        datasources=SimpleNamespace(DataSource=SimpleNamespace(lookupDataSource=look_up))
    )
    spark = SimpleNamespace(util=utils, sql=SimpleNamespace(execution=execution))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
    state = SimpleNamespace(conf=lambda: "the session's")
    statements = []

    def sql(statement):
        statements.append(statement)
        if fault:
            raise PySparkFault(f"{fault}\nJVM stacktrace:\n")

    return SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=jvm),
        _jsparkSession=SimpleNamespace(sessionState=lambda: state),
        conf=SimpleNamespace(get=settings.get),
        version=version,
        sql=sql,
        statements=statements,
    )


def refused_session(*sources, **options):
    with pytest.raises(ConfigError) as caught:
        requirements.require_session(session(*sources, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_session_needs_all_data_sources_and_settings():
    require = requirements.require_session
    require(session(*SOURCES))
    extensions = f"org.other.Extension, {DELTA['spark.sql.extensions']}"
    usual = session(*SOURCES, settings={**DELTA, "spark.sql.extensions": extensions})
    require(usual)
    assert usual.statements == []
    for source in SOURCES:
        text = refused_session(*(name for name in SOURCES if name != source))
        assert f"a data source for {source}" in text
        assert f"spark.jars.packages={SPARK_PACKAGES}" in text
        assert "--packages" in text
        assert "spark.sql.extensions=" not in text
    for missing, value in DELTA.items():
        without = {name: value for name, value in DELTA.items() if name != missing}
        text = refused_session(*SOURCES, settings=without, fault="DELTA_CONFIGURE_SPARK_SESSION")
        assert f"{missing}={value}" in text
        assert "(cause='DELTA_CONFIGURE_SPARK_SESSION')" in text
        assert "spark.jars.packages" not in text
        assert [name for name in without if f"{name}=" in text] == []
    of_java = "An error occurred while calling o1.sql.\n: org.other.NoCatalog: it is absent"
    text = refused_session(*SOURCES, settings=OF_ANOTHER, fault=of_java)
    assert "(cause='org.other.NoCatalog: it is absent')" in text
    # All that a plain session lacks is named at once.
    text = refused_session(settings={"spark.sql.extensions": "org.other.Extension"})
    for name, value in {"spark.jars.packages": SPARK_PACKAGES, **DELTA}.items():
        assert f"{name}={value}" in text


def test_a_delta_by_other_names_is_tried_and_accepted_where_it_works():
    other = session(*SOURCES, settings=OF_ANOTHER)
    requirements.require_session(other)
    assert [statement.split()[0] for statement in other.statements] == ["CREATE", "MERGE"]
    (folder,) = {
        re.search(r"delta\.`file:(.+)/trial`", statement)[1] for statement in other.statements
    }
    assert not Path(folder).exists()


@pytest.mark.parametrize("line", SPARK_LINES, ids=lambda line: line.minor)
def test_packages_are_those_of_the_sessions_spark(line):
    text = refused_session(version=f"{line.minor}.1-amzn-0")
    assert f"spark.jars.packages={line.packages}" in text


def test_an_older_spark_is_refused_and_a_newer_one_is_warned_of():
    text = refused_session(*SOURCES, version="3.5.9")
    assert text.startswith("Spark 3.5.9 is not supported")
    assert "Use Spark 4.0, 4.1 or 4.2" in text
    with structlog.testing.capture_logs() as lines:
        requirements.require_session(session(*SOURCES))
        assert lines == []
        requirements.require_session(session(*SOURCES, version="4.3.0"))
        requirements.require_session(session(*SOURCES, version="5.0.0-preview1"))
    assert [(line["event"], line["version"]) for line in lines] == [
        ("Spark is newer than the tested versions", "4.3.0"),
        ("Spark is newer than the tested versions", "5.0.0-preview1"),
    ]
    assert {line["packages"] for line in lines} == {SPARK_LINES[-1].packages}


def test_iceberg_and_its_catalog_are_named_where_they_are_missing():
    classes = ["org.apache.iceberg.spark.SparkCatalog"]
    require_iceberg(session(classes=classes))
    for line in SPARK_LINES:
        with pytest.raises(ConfigError, match=r"lacks Iceberg|no runtime") as caught:
            require_iceberg(session(version=f"{line.minor}.0"))
        if line.iceberg:
            assert line.iceberg_packages in caught.value.hint
        else:
            assert f"no runtime for Spark {line.minor} yet" in str(caught.value)
    catalog = {"spark.sql.catalog.lake": "x.Y"}
    require_iceberg(session(classes=classes, settings=catalog), catalog="lake")
    with pytest.raises(ConfigError, match=r"no catalog of this name.*lake") as caught:
        require_iceberg(session(classes=classes), catalog="lake")
    assert "spark.sql.catalog.lake=" in caught.value.hint


def test_a_spark_without_an_iceberg_runtime_is_refused_before_it_starts(monkeypatch):
    without = next(line for line in SPARK_LINES if not line.iceberg)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    require_iceberg_package(packages=SPARK_PACKAGES, jars="")
    monkeypatch.setattr(requirements, "installed_line", lambda: without)
    with pytest.raises(ConfigError, match=f"no runtime for Spark {without.minor} yet") as caught:
        require_iceberg_package(packages=without.packages, jars="")
    assert "Use Spark 4.0 or 4.1" in caught.value.hint
    # One of the user's own may exist.
    require_iceberg_package(packages="org:iceberg-spark-runtime-4.2_2.13:9", jars="")
    require_iceberg_package(packages=without.packages, jars="/own.jar")
    require_iceberg_package(packages="", jars="")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    require_iceberg_package(packages=without.packages, jars="")


def test_versions_are_the_same_wherever_they_are_named():
    """The table of versions has them; what is compiled from it says the same."""
    page = (REPOSITORY / "docs/reference/versions.md").read_text()
    for line in SPARK_LINES:
        jars = ivy_file(line).decode()
        packages = filter(None, (*line.packages.split(","), line.iceberg_packages))
        for package in packages:
            organisation, name, revision = package.split(":")
            assert f'org="{organisation}" name="{name}" rev="{revision}"' in jars
        assert line.packages in page
        assert line.iceberg_packages in page
    names = ("consumer", *(f"spark-{line.minor}" for line in SPARK_LINES[1:]))
    locked = [(REPOSITORY / f"requirements/{name}.txt").read_text() for name in names]
    for line, text in zip(SPARK_LINES, locked, strict=True):
        assert f"\npyspark=={line.pyspark} " in text
    assert f"\n{DELTA_PYTHON} " in locked[0]


def test_durations_of_batches_are_counted_and_the_last_size_is_kept():
    metrics = consumer_metrics()
    listener = MetricsListener(metrics)
    listener.idle_s = {1: 2.0}
    for batch, duration_ms, rows in ((0, 900, 5), (1, 3_500, 7)):
        durations = {"addBatch": 800, "triggerExecution": duration_ms, "walCommit": 250}
        progress = SimpleNamespace(
            batchId=batch, batchDuration=duration_ms, numInputRows=rows, durationMs=durations
        )
        listener.onQueryProgress(SimpleNamespace(progress=progress))
    value = metrics.registry.get_sample_value
    of_batches = "tidegate_consumer_batch_duration_seconds"
    edges = {"0.5": 0, "1.0": 1, "2.5": 2}
    assert {le: value(f"{of_batches}_bucket", {"le": le}) for le in edges} == edges
    assert value(f"{of_batches}_sum") == 2.4
    assert value("tidegate_consumer_batch_input_rows") == 7
    phases = {
        sample.labels["phase"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "tidegate_consumer_batch_phase_seconds_total"
    }
    assert phases == {"spark-walCommit": 0.5}


# ---------------------------------------------------------------- errors of the batch function
CALLING = "py4j.protocol.Py4JJavaError: An error occurred while calling"


# Spark's, of StreamExecution.
OF_SPARK = re.compile(
    CALLING + r"((.|\r\n|\r|\n)*)(java.lang.InterruptedException|java.io.InterruptedIOException"
    r"|java.nio.channels.ClosedByInterruptException)"
)


class Py4JJavaError(Exception):
    """As py4j's, which needs a JVM."""

    __module__ = "py4j.protocol"


def of_spark(error):
    """Return the text that py4j makes for Java of what the function raises."""

    def batch(_rows, _number):
        raise error

    try:
        with_short_failures(batch)(None, 0)
    except BatchFailed:
        return traceback.format_exc()


def chained(name, lines):
    java = Py4JJavaError(
        "An error occurred while calling o1.run.\n: " + "\tat a.b\n" * lines + name + "\n"
    )
    found = ValueError("a sink failed")
    found.__cause__ = java
    return found


def test_an_interruption_is_still_one_for_spark_and_short():
    for name in (
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
    ):
        text = of_spark(chained(name, 10_000))
        assert OF_SPARK.search(text) is not None
        assert len(text.partition(CALLING)[2]) < 100


def test_of_any_other_error_spark_gets_the_class_and_the_beginning():
    text = of_spark(chained("org.apache.spark.SparkException", 10_000))
    assert "ValueError: a sink failed" in text
    assert CALLING not in text
    assert OF_SPARK.search(text) is None
    assert len(of_spark(Py4JJavaError("x" * 100_000))) < 3_000
    assert RunStopped.__name__ in of_spark(RunStopped("the run is stopping"))


def test_what_ends_the_process_is_passed_on_and_a_batch_is_called_as_it_is():
    def batch(_rows, _number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_short_failures(batch)(None, 0)
    calls = []
    with_short_failures(lambda rows, number: calls.append((rows, number)))("rows", 7)
    assert calls == [("rows", 7)]


# ---------------------------------------------------------------- lines of a starting JVM
JVM_PROGRAM = """
import os, subprocess, sys, threading
from tidegate.spark_consumer.spark.session import held_back

try:
    with held_back():
        script = "import os\\nos.write(2, b'early\\\\n'); input(); os.write(2, b'later\\\\n')"
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        os.write(2, b'{"event": "ours"}\\n')
        if sys.argv[1] == "fails":
            raise SystemExit("does not start")
finally:
    child.communicate(b"\\n")
    for copying in [one for one in threading.enumerate() if one.name == "java-lines"]:
        copying.join()
"""

DYING = """
import os, subprocess, sys
from tidegate.spark_consumer.spark.session import held_back

try:
    with held_back():
        script = "import os, time; print(flush=True); time.sleep(0.3); os.write(2, b'why\\\\n')"
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        child.stdout.readline()
        raise SystemExit
finally:
    os.write(2, b"does not start\\n")
    os._exit(1)
"""

IN_TURNS = """
def opened():
    for copying in [one for one in threading.enumerate() if one.name == "java-lines"]:
        copying.join()
    return len(os.listdir("/proc/self/fd"))

before = opened()
found = []
for _ in range(3):
    with held_back():
        pass
found.append(opened() - before)
with held_back():  # a JVM that lives longer than the block
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
child.communicate(b"\\n")
found.append(opened() - before)
try:
    with held_back():
        raise ValueError
except ValueError:
    found.append(opened() - before)
print(found)
"""


@contextmanager
def written():
    """Yield lines that are passed on to a pipe, and a function that reads what came there."""
    read, write = os.pipe()
    os.set_blocking(read, False)

    def found():
        try:
            return os.read(read, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []

    yield _Lines(write), found
    os.close(read)
    os.close(write)


def copy(lines, *texts):
    read, write = os.pipe()
    os.write(write, "".join(f"{text}\n" for text in texts).encode())
    os.close(write)
    lines.copy(read)


def test_lines_are_held_except_our_own_and_then_passed_on():
    with written() as (lines, found):
        ours = ['{"event": "ours"}', "2026-11-30T02:00:00Z [info] ours", "\x1b[2m2026-11-30 ours"]
        copy(lines, "a", *ours, "26/11/30 02:00:00 WARN Utils: Spark's", "b")
        assert found() == ours
        lines.drop()
        copy(lines, "c", "{}")
        assert found() == ["c", "{}"]
    # The last lines are shown in order where Java does not start.
    with written() as (lines, found):
        copy(lines, *map(str, range(400)))
        lines.show()
        copy(lines, "later")
        assert found() == [*map(str, range(100, 400)), "later"]


def run_program(text, *arguments):
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("how", "shown"),
    [("starts", ["later", '{"event": "ours"}']), ("fails", ["does not start", "early", "later"])],
)
def test_a_process_writes_past_the_block_to_the_same_place(how, shown):
    done = run_program(JVM_PROGRAM, how)
    assert set(shown) <= set(done.stderr.splitlines()), done.stderr


def test_the_last_words_of_a_process_that_dies_come_before_the_error():
    assert run_program(DYING).stderr.splitlines() == ["why", "does not start"]


def test_no_file_stays_open_once_nothing_writes_any_more():
    """Each session of a program passes here, also one that finds a JVM that runs."""
    imports = JVM_PROGRAM.split("\n\n", maxsplit=1)[0]
    done = run_program(imports + IN_TURNS)
    assert done.stdout == "[0, 0, 0]\n", done.stderr
    # Without a standard error nothing happens.
    done = run_program(f"import os; os.close(2)\n{imports}\nwith held_back(): print('in')")
    assert (done.returncode, done.stdout) == (0, "in\n")

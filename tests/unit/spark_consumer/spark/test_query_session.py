"""The settings of a query's sessions, over sessions that are dictionaries."""

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.spark import query_session
from tidegate.spark_consumer.spark.query_session import STORED_AS, QuerySession

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
    """As a copy of a session has it: with the default catalog, whatever was in use."""

    def __init__(self):
        self.name = "spark_catalog"

    def currentCatalog(self):  # noqa: N802 - pyspark's name
        return self.name


def session(settings=PROGRAM):
    conf = Conf(settings)
    java = JavaSession(conf)
    return SimpleNamespace(conf=conf, sparkContext=None, _jsparkSession=java, catalog=Catalog())


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    monkeypatch.setattr(
        query_session, "SparkSession", lambda _context, java: session(java.settings)
    )


def stored_as(conf):
    return {name: conf.get(name) for name in STORED_AS} == dict(STORED_AS)


def test_what_changes_stored_values_is_set_in_copies_only():
    program = session()
    found = QuerySession(program)
    assert stored_as(found.spark.conf)
    assert DEFAULTS not in found.spark.conf
    assert found.spark.conf["spark.kept"] == PROGRAM["spark.kept"]
    assert program.conf == PROGRAM


def test_a_schema_without_a_catalog_is_one_of_the_programs_catalog():
    program = session()
    schemas = ("", "bank", "other.bank")
    assert tuple(map(QuerySession(program).whole_schema, schemas)) == schemas
    program.catalog.name = "lake"  # USE CATALOG lake
    found = QuerySession(program)
    assert list(map(found.whole_schema, schemas)) == ["", "lake.bank", "other.bank"]
    assert found.spark.catalog.name == "spark_catalog"


@pytest.mark.parametrize("settings", [PROGRAM, {}], ids=["all set", "none set"])
def test_batches_have_the_settings_and_the_programs_sinks_get_theirs_back(settings):
    found = QuerySession(session(), programs=["function"])
    own, program = SimpleNamespace(name="mirror"), SimpleNamespace(name="function")
    with found.settings_of(program):  # nothing is set before the first batch
        pass
    batches = session(settings)
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
    program = session()
    found = QuerySession(program)
    batches = session(program.conf)
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


def test_what_a_sink_sets_in_a_copy_stays_when_the_program_sets_it_later():
    program = session({})
    found, batches = QuerySession(program), session({})
    found.begin_batch(batches)
    found.spark.conf["spark.sql.shuffle.partitions"] = "1"
    program.conf["spark.sql.shuffle.partitions"] = "9"
    found.begin_batch(batches)
    assert found.spark.conf["spark.sql.shuffle.partitions"] == "1"
    assert batches.conf["spark.sql.shuffle.partitions"] == "9"


def test_a_session_of_our_own_has_the_same_values():
    shared = DELTA_SESSION_SETTINGS.keys() & STORED_AS.keys()
    assert len(shared) > 2
    assert all(DELTA_SESSION_SETTINGS[name] == STORED_AS[name] for name in shared)

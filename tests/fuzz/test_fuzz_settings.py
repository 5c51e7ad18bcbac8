"""Settings from files, variables and flags: settings, or one ConfigError without secrets."""

import os
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.local_stack.config import LocalStackConfig
from tidegate.producer.config import ProducerConfig
from tidegate.program.settings import variable_of
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig

SECRET = "hush-hush-hush"
GOOD = {
    ProducerConfig: {
        "bootstrap_servers": "127.0.0.1:9092", "registry_url": "http://127.0.0.1:8081",
        "project": "p", "instance": "inst", "database": "my_db", "change_stream": "S",
        "prefix": "bank",
    },
    ConsumerConfig: {
        "bootstrap_servers": "127.0.0.1:9092", "registry_url": "http://127.0.0.1:8081",
        "prefix": "bank", "output": "out", "checkpoint": "check",
    },
    LocalStackConfig: {},
}  # fmt: skip
PROGRAMS = st.sampled_from(list(GOOD))
# The local stack reads no file.
READERS_OF_FILES = st.sampled_from([ProducerConfig, ConsumerConfig])

WORDS = st.sampled_from(
    ["", "now", "0", "-1", "1e999", "true", "nan", "[]", "{}", '{"a": "b"}', '{"a":{"b":1}}', "[",
     "../..", "http://", "http://[::1", "http://h:99999", "http://h\n", "\0", "\x1b[31m", "[/red]",
     "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "caught-up", "debug", "{" * 3_000]
)  # fmt: skip
TEXTS = WORDS | st.text(max_size=12)
# What a variable can hold: bytes that are no UTF-8 come as lone surrogates.
SPOKEN = (WORDS | st.binary(max_size=12).map(os.fsdecode)).filter(lambda text: "\0" not in text)
SCALARS = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats() | TEXTS
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("settings") / "settings.toml"


@contextmanager
def variables(values):
    """Set in place of monkeypatch, which lasts for all examples of a test."""
    before = dict(os.environ)
    try:
        os.environ.update(values)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def load(program, file=None, **flags):
    """Return the settings, or None where they were refused."""
    try:
        settings = program.load(file, **flags)
    except ConfigError as error:
        check_refusal(error)
        return None
    assert type(settings) is program
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()}"
    if isinstance(settings, ProducerConfig):
        assert 0 <= settings.start_ns() < 2**63
        assert settings.end_ns is None or 0 <= settings.end_ns < 2**63
    return settings


def check_refusal(error):
    assert error.exit_code == 2
    assert str(error)
    assert "Traceback" not in str(error)
    assert SECRET not in str(error)


def toml(value):
    """A value as TOML; text by the escapes that TOML and JSON share."""
    match value:
        case None:
            return '"none"'
        case bool():
            return str(value).lower()
        case str():
            return '"' + "".join(
                c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in value
            ) + '"'  # fmt: skip
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case _:
            return str(value)


def names_of(program):
    return st.sampled_from(sorted(program.model_fields)) | TEXTS


@given(READERS_OF_FILES, st.data())
def test_files_of_any_values(file, program, data):
    table = data.draw(st.dictionaries(names_of(program), PLAIN, max_size=4))
    lines = [f"{toml(name)} = {toml(value)}" for name, value in {**GOOD[program], **table}.items()]
    file.write_text("\n".join(lines))
    load(program, file)


SAMPLE = b"""prefix = "bank"
slots = 3
start = 2026-01-01T00:00:00Z
[kafka_options]
"sasl.password" = "hush-hush-hush"
sasl.username = "me"
"""


@given(READERS_OF_FILES, st.data())
def test_damaged_files(damaged, file, program, data):
    file.write_bytes(damaged(data, SAMPLE))
    load(program, file, **GOOD[program])


@given(READERS_OF_FILES, st.binary(max_size=60))
@example(ProducerConfig, b"a = " + b"[" * 5_000 + b"]" * 5_000)
@example(ProducerConfig, b"kafka_options" + b".a" * 5_000 + b" = 1")
@example(ProducerConfig, b"slots = 1" + b"0" * 5_000)
@example(ConsumerConfig, b"\xff\xfe")
@example(ConsumerConfig, b"metrics_port = 0x1" + b"0" * 5_000)
def test_files_of_any_bytes(file, program, content):
    file.write_bytes(content)
    load(program, file, **GOOD[program])


@given(PROGRAMS, st.data())
def test_any_variables(program, data):
    names = data.draw(st.lists(names_of(program), max_size=4))
    values = {variable_of(program, name): value for name, value in GOOD[program].items()}
    for name in names:
        variable = variable_of(program, name).replace("\0", "").replace("=", "")
        try:
            os.fsencode(variable)
        except UnicodeEncodeError:
            continue
        values[variable] = data.draw(SPOKEN)
    with variables(values):
        load(program)


@example(ProducerConfig, {"TIDEGATE_PRODUCER_KAFKA_OPTIONS": "[" * 100_000})
@example(ProducerConfig, {"TIDEGATE_PRODUCER_KAFKA_OPTIONS": '{"a":' * 900 + "1" + "}" * 900})
@example(ProducerConfig, {"TIDEGATE_PRODUCER_KAFKA_OPTIONS": SECRET})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_KAFKA_OPTIONS": f'["{SECRET}"]'})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_REGISTRY_URL": f"http://me:{SECRET}@host"})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_REGISTRY_USER_INFO": SECRET, "TIDEGATE_CONSUMER_": ""})
@example(ProducerConfig, {"TIDEGATE_PRODUCER_MOD_TYPES": "\udc80"})
@given(
    PROGRAMS,
    st.dictionaries(
        st.sampled_from(
            ["TIDEGATE_PRODUCER_KAFKA_OPTIONS", "TIDEGATE_CONSUMER_KAFKA_OPTIONS",
             "TIDEGATE_PRODUCER_REGISTRY_USER_INFO",
             "tidegate_producer_slots", "TIDEGATE_LOCAL_SEED"]
        ),
        SPOKEN | st.just(f'{{"sasl.password": "{SECRET}"}}') | st.just(SECRET),
    ),
)  # fmt: skip
def test_secrets_in_variables(program, values):
    with variables(values):
        load(program, **GOOD[program])


@given(PROGRAMS, st.data())
def test_any_flags(program, data):
    flags = data.draw(
        st.dictionaries(st.sampled_from(sorted(program.model_fields)), PLAIN, max_size=4)
    )
    load(program, **{**GOOD[program], **flags})


@pytest.mark.parametrize("program", list(GOOD), ids=lambda program: program.__name__)
def test_what_is_good_is_taken(program):
    assert load(program, **GOOD[program]) is not None


INSTANTS = (
    st.sampled_from(["now", "", "1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775807Z"])
    | st.datetimes().map(lambda at: f"{at.isoformat()}Z")
    | TEXTS
)


@given(INSTANTS, INSTANTS)
@example("0001-01-01T00:00:00Z", "")
@example("now", "9999-12-31T23:59:59Z")
@example("now", "2262-04-11T23:47:16.854775808Z")
def test_any_instants(start, end):
    load(ProducerConfig, **{**GOOD[ProducerConfig], "start": start, "end": end})

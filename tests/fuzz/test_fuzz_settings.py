"""Settings from files, variables, flags and command lines: settings, or errors without secrets."""

import os
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.fuzz.conftest import damage
from tidegate.local_stack.cli import app as local_app
from tidegate.local_stack.config import LocalStackConfig
from tidegate.producer.cli import app as producer_app
from tidegate.producer.config import ProducerConfig
from tidegate.program.settings import variable_of
from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.spark_consumer.cli import app as consumer_app
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

INSTANTS = (
    st.sampled_from(["now", "", "1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775807Z"])
    | st.datetimes().map(lambda at: f"{at.isoformat()}Z")
    | TEXTS
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("settings") / "settings.toml"


def check_refusal(error):
    assert error.exit_code == 2
    assert str(error)
    assert "Traceback" not in str(error)
    assert SECRET not in str(error)


def load(program, file=None, *, variables=None, **flags):
    """Return the settings, or None where they were refused."""
    with pytest.MonkeyPatch.context() as patch:  # for this example alone
        for name, value in (variables or {}).items():
            patch.setitem(os.environ, name, value)
        try:
            settings = program.load(file, **flags)
        except ConfigError as error:
            check_refusal(error)
            return None
    assert type(settings) is program
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump()}"
    if isinstance(settings, ProducerConfig):
        assert 0 <= (settings.start_ns or 0) < 2**63
        assert settings.end_ns is None or 0 <= settings.end_ns < 2**63
    return settings


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


@given(READERS_OF_FILES, st.binary(max_size=60), st.data())
def test_files_of_damaged_and_of_any_bytes(file, program, content, data):
    for one in (content, damage(data, SAMPLE)):
        file.write_bytes(one)
        load(program, file, **GOOD[program])


@pytest.mark.parametrize(
    "content",
    [
        b"a = " + b"[" * 5_000 + b"]" * 5_000, b"kafka_options" + b".a" * 5_000 + b" = 1",
        b"slots = 1" + b"0" * 5_000, b"\xff\xfe", b"metrics_port = 0x1" + b"0" * 5_000,
    ],
    ids=["deep", "dotted", "long", "another encoding", "hexadecimal"],
)  # fmt: skip
def test_the_worst_files(file, content):
    for program in (ProducerConfig, ConsumerConfig):
        file.write_bytes(content)
        load(program, file, **GOOD[program])


@given(PROGRAMS, st.data())
def test_any_variables(program, data):
    values = {variable_of(program, name): value for name, value in GOOD[program].items()}
    for name in data.draw(st.lists(names_of(program), max_size=4)):
        variable = variable_of(program, name).replace("\0", "").replace("=", "")
        with suppress(UnicodeEncodeError):
            os.fsencode(variable)
            values[variable] = data.draw(SPOKEN)
    load(program, variables=values)


OPTIONS = "TIDEGATE_PRODUCER_KAFKA_OPTIONS"


@example(ProducerConfig, {OPTIONS: "[" * 100_000})
@example(ProducerConfig, {OPTIONS: '{"a":' * 900 + "1" + "}" * 900})
@example(ProducerConfig, {OPTIONS: SECRET})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_KAFKA_OPTIONS": f'["{SECRET}"]'})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_REGISTRY_URL": f"http://me:{SECRET}@host"})
@example(ConsumerConfig, {"TIDEGATE_CONSUMER_REGISTRY_USER_INFO": SECRET, "TIDEGATE_CONSUMER_": ""})
@example(ProducerConfig, {"TIDEGATE_PRODUCER_MOD_TYPES": "\udc80"})
@given(
    PROGRAMS,
    st.dictionaries(
        st.sampled_from([OPTIONS, "TIDEGATE_CONSUMER_KAFKA_OPTIONS", "TIDEGATE_LOCAL_SEED",
                         "TIDEGATE_PRODUCER_REGISTRY_USER_INFO", "tidegate_producer_slots"]),
        SPOKEN | st.just(f'{{"sasl.password": "{SECRET}"}}') | st.just(SECRET),
    ),
)  # fmt: skip
def test_secrets_in_variables(program, values):
    load(program, variables=values, **GOOD[program])


@given(PROGRAMS, INSTANTS, INSTANTS, st.data())
@example(ProducerConfig, "0001-01-01T00:00:00Z", "", None)
@example(ProducerConfig, "now", "9999-12-31T23:59:59Z", None)
@example(ProducerConfig, "now", "2262-04-11T23:47:16.854775808Z", None)
def test_any_flags(program, start, end, data):
    assert load(program, **GOOD[program]) is not None
    if data is not None:
        names = st.sampled_from(sorted(program.model_fields))
        flags = data.draw(st.dictionaries(names, PLAIN, max_size=4))
        load(program, **{**GOOD[program], **flags})
    if program is ProducerConfig:
        load(program, **{**GOOD[program], "start": start, "end": end})


# ---------------------------------------------------------------- command lines

RUNNER = CliRunner()
FLAGS = sorted({f"--{name.replace('_', '-')}" for config in (ProducerConfig, ConsumerConfig)
                for name in config.model_fields})  # fmt: skip
ARGUMENTS = st.sampled_from(
    ["", "-", "--", "-1", "--[/x]", "[/red]", "[bold", "1" * 5_000, "9" * 30, "\ud800", "\0", "nan",
     "--config", "/", "no-such-file", "\x1b[2J", "--json", "--checkpoint", "a://b", *FLAGS]
) | st.text(max_size=8)  # fmt: skip
# Too few settings to start anything, whatever else is there.
COMMANDS = {
    "producer run": (producer_app, ["run"], ["--slots", "0"]),
    "producer check": (producer_app, ["check"], ["--slots", "0"]),
    "consumer run": (consumer_app, ["run"], ["--metrics-port", "-1"]),
    "consumer status": (consumer_app, ["status"], []),
    "local demo": (local_app, ["demo"], ["--workers", "0"]),
}


def ended(app, arguments):
    """The exit code as `run_program` gives it."""
    result = RUNNER.invoke(app, arguments)
    match result.exception:
        case None:
            return result.exit_code
        case SystemExit() as end:
            return end.code
        case TidegateError() as error:
            assert str(error)
            return error.exit_code
        case error:
            raise error


@given(st.sampled_from(sorted(COMMANDS)), st.lists(ARGUMENTS, min_size=1, max_size=5))
@example("producer run", ["--slots", "[/x]"])
@example("producer run", ["--config", "\0"])
@example("producer run", ["--start", "9999-12-31T23:59:59Z"])
@example("consumer run", ["--output", "\ud800"])
@example("consumer status", ["--checkpoint", "\0"])
@example("consumer status", ["--checkpoint", "\ud800"])
@example("consumer status", ["--checkpoint", ""])
def test_command_lines_end_with_a_text_and_start_nothing(tmp_path_factory, name, arguments):
    app, command, last = COMMANDS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.getbasetemp())
        code = ended(app, [*command, *arguments, *last])
    assert code == 2 or (code == 0 and "--help" in arguments)

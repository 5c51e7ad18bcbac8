"""The tree of errors, and the registry in memory."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil

import pytest

import tidegate
from tidegate.schemas.errors import (
    ConfigError,
    ExitCode,
    InvariantViolation,
    SchemaError,
    TidegateError,
    UnreachableError,
    invariant,
)
from tidegate.schemas.registry import InMemorySchemaRegistry, RegisteredSchema, SchemaRegistry

# Packages with errors of the tree that need no extra to be imported.
for package in ("schemas", "producer", "spark_consumer"):
    importlib.import_module(f"tidegate.{package}")
for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
    if module.name.endswith(".errors"):
        importlib.import_module(module.name)


def tree(kind=TidegateError):
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


TREE = sorted(set(tree()), key=lambda kind: (kind.__module__, kind.__qualname__))


def made(kind):
    """An error of any class, whatever its own arguments are."""
    error = kind.__new__(kind)
    TidegateError.__init__(error, "what", hint="do this", slot=3, token="k")
    return error


@pytest.mark.parametrize("kind", TREE)
def test_every_error_survives_pickling(kind):
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    if kind.__str__ is TidegateError.__str__:
        assert str(again) == "what (slot=3, token='k'). do this"
    assert again.fields == {"slot": 3, "token": "k"}
    assert again.hint == "do this"


@pytest.mark.parametrize("kind", TREE)
def test_every_exit_code_says_whether_starting_again_helps(kind):
    """A supervisor that stops at 2 must neither give up a retriable error nor repeat a setting."""
    assert kind.exit_code in set(ExitCode) - {ExitCode.DONE}
    assert isinstance(kind.retriable, bool)
    assert kind.__doc__
    if kind.exit_code == ExitCode.TEMPORARY:
        assert kind.retriable
    assert not (kind.retriable and kind.exit_code == ExitCode.USAGE)


def test_exit_codes():
    kinds = (ConfigError, SchemaError, InvariantViolation, UnreachableError)
    assert [kind.exit_code for kind in kinds] == [2, 1, os.EX_SOFTWARE, os.EX_TEMPFAIL]
    assert str(SchemaError("what")) == "what"


def test_a_story_survives_pickling_and_its_last_lines_are_shown():
    error = InvariantViolation("broken", slot=3)
    error.story = tuple(f"line {number}" for number in range(20))
    again = pickle.loads(pickle.dumps(error))
    assert again.story == error.story
    assert str(again).splitlines() == [
        "broken (slot=3)",
        *(f"  line {number}" for number in range(12, 20)),
    ]


def test_a_broken_invariant_names_its_fields():
    invariant(condition=[1], message="never seen")
    with pytest.raises(InvariantViolation, match=r"broken \(slot=3\)"):
        invariant(0, "broken", slot=3)


@pytest.fixture
def registry() -> SchemaRegistry:
    return InMemorySchemaRegistry()


def test_equal_schemas_share_an_id_and_versions_are_those_of_the_subject(registry):
    first = registry.register("a-value", {"type": "string"})
    assert registry.register("a-value", {"type": "string"}) == first
    assert registry.register("b-value", {"type": "string"}) == first
    second = registry.register("a-value", {"type": "long"})
    assert registry.subjects == {"a-value": [first, second], "b-value": [first]}
    found = tuple(
        RegisteredSchema(*one) for one in ((1, {"type": "string"}), (2, {"type": "long"}))
    )
    assert registry.versions("a-value") == found
    assert registry.versions("c-value") == ()
    registry.schema(first)["type"] = "long"  # it is the caller's own
    assert registry.schema(first) == {"type": "string"}
    with pytest.raises(SchemaError):
        registry.schema(5)


def record(**fields):
    fields = [{"name": name, **rest} for name, rest in fields.items()]
    return {"type": "record", "name": "R", "fields": fields}


def field(kind):
    """A record with one field; a text as `AB` is an enum of its letters."""
    if isinstance(kind, str) and kind.isupper():
        kind = {"type": "enum", "name": "E", "symbols": list(kind)}
    return record(a={"type": kind})


def listed(items):
    return field({"type": "array", "items": items})


LONG_B = {"type": "long", "default": 0}


@pytest.mark.parametrize(
    ("earlier", "later", "is_accepted"),
    [
        (field("long"), record(a={"type": "long"}, b=LONG_B), True),
        (field("long"), record(), True),
        (field("long"), record(a={"type": "long"}, b={"type": "long"}), False),
        (field("long"), field("string"), False),
        (field(["null", "long"]), field(["null", "long", "string"]), True),
        (field(["null", "long"]), field(["null"]), False),
        (field(["null", record()]), field(["null", field("long")]), False),
        (listed(record()), listed(record(b=LONG_B)), True),
        (listed("long"), listed("string"), False),
        (field("AB"), field("ABC"), True),
        (field("AB"), field("A"), False),
    ],
)
def test_a_level_is_enforced(registry, earlier, later, is_accepted):
    registry.register("a-value", earlier)
    assert registry.compatibility("a-value") is None
    registry.set_compatibility("a-value", "BACKWARD")
    assert registry.levels == {"a-value": registry.compatibility("a-value")}
    if is_accepted:
        registry.register("a-value", later)
    else:
        with pytest.raises(SchemaError, match=r"incompatible.*a-value"):
            registry.register("a-value", later)
    assert len(registry.versions("a-value")) == 1 + is_accepted

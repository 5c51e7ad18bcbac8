"""The registry in memory keeps the port's promises."""

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import (
    InMemorySchemaRegistry,
    RegisteredSchema,
    SchemaRegistry,
)


@pytest.fixture
def registry() -> SchemaRegistry:
    return InMemorySchemaRegistry()


def test_equal_schemas_share_an_id(registry):
    first = registry.register("a-value", {"type": "string"})
    assert registry.register("a-value", {"type": "string"}) == first
    assert registry.register("b-value", {"type": "string"}) == first
    assert registry.register("a-value", {"type": "long"}) != first
    assert registry.subjects == {"a-value": [1, 2], "b-value": [1]}


def test_a_schema_by_its_id_is_the_callers_own(registry):
    schema_id = registry.register("a-value", {"type": "string"})
    registry.schema(schema_id)["type"] = "long"
    assert registry.schema(schema_id) == {"type": "string"}


def test_an_unknown_id_is_refused(registry):
    with pytest.raises(SchemaError):
        registry.schema(5)


def test_versions_are_those_of_the_subject_the_oldest_first(registry):
    first = registry.register("a-value", {"type": "string"})
    registry.register("b-value", {"type": "bytes"})
    second = registry.register("a-value", {"type": "long"})

    assert registry.versions("a-value") == (
        RegisteredSchema(first, {"type": "string"}),
        RegisteredSchema(second, {"type": "long"}),
    )
    assert registry.versions("c-value") == ()


def record(**fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, **rest} for name, rest in fields.items()],
    }


@pytest.mark.parametrize(
    ("later", "is_accepted"),
    [
        (record(a={"type": "long"}, b={"type": "long", "default": 0}), True),
        (record(), True),
        (record(a={"type": "long"}, b={"type": "long"}), False),
        (record(a={"type": "string"}), False),
    ],
)
def test_a_level_is_enforced(registry, later, is_accepted):
    registry.register("a-value", record(a={"type": "long"}))
    registry.set_compatibility("a-value", "BACKWARD")
    if is_accepted:
        registry.register("a-value", later)
    else:
        with pytest.raises(SchemaError, match=r"incompatible.*a-value"):
            registry.register("a-value", later)
    assert len(registry.versions("a-value")) == 1 + is_accepted


@pytest.mark.parametrize(
    ("earlier", "later", "is_accepted"),
    [
        (["null", "long"], ["null", "long", "string"], True),
        (["null", "long"], ["null"], False),
        (["null", record()], ["null", record(a={"type": "long"})], False),
        ({"type": "array", "items": record()}, {"type": "array", "items": record()}, True),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "string"}, False),
        ("AB", "ABC", True),
        ("AB", "A", False),
    ],
)
def test_unions_and_enums_only_grow(registry, earlier, later, is_accepted):
    def of(kind):
        is_enum = isinstance(kind, str)
        inner = {"type": "enum", "name": "E", "symbols": list(kind)} if is_enum else kind
        return record(a={"type": inner})

    registry.register("a-value", of(earlier))
    registry.set_compatibility("a-value", "BACKWARD")
    if is_accepted:
        registry.register("a-value", of(later))
    else:
        with pytest.raises(SchemaError, match=r"incompatible.*a-value"):
            registry.register("a-value", of(later))


def test_levels_are_kept(registry):
    assert registry.compatibility("a-value") is None
    registry.set_compatibility("a-value", "NONE")
    registry.set_compatibility("a-value", "BACKWARD")
    assert registry.levels == {"a-value": "BACKWARD"}

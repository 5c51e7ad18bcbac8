"""The registry in memory keeps the port's promises."""

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry, SchemaRegistry


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


def test_levels_are_kept(registry):
    registry.require_compatibility("a-value", "NONE")
    registry.require_compatibility("a-value", "BACKWARD")
    assert registry.levels == {"a-value": "BACKWARD"}

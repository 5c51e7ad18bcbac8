"""Compatibility levels: set where unset, respected where chosen, named where they cannot work."""

import pytest

from tidegate.producer.translation.subjects import is_registered, register, require_backward
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.registry import InMemorySchemaRegistry

STRING = {"type": "string"}


class ReadOnly(InMemorySchemaRegistry):
    def set_compatibility(self, subject, level):
        message = "registry_user_info: the registry rejects these credentials"
        raise ConfigError(message, subject=subject)


@pytest.mark.parametrize("unset", [None, "NONE"])
def test_a_level_is_set_where_it_is_unset(unset):
    registry = InMemorySchemaRegistry()
    if unset is not None:
        registry.set_compatibility("a-key", unset)

    assert register(registry, "a-key", STRING) == 1
    assert registry.levels == {"a-key": "BACKWARD"}


@pytest.mark.parametrize("level", ["BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"])
def test_a_level_that_promises_as_much_is_left_alone(level):
    registry = ReadOnly()
    registry.levels["a-key"] = level
    require_backward(registry, "a-key")

    assert registry.levels == {"a-key": level}


def test_a_level_that_an_operator_chose_is_not_overwritten():
    registry = InMemorySchemaRegistry()
    registry.set_compatibility("a-key", "FORWARD")

    with pytest.raises(ConfigError, match=r"subject a-key has the compatibility FORWARD.*BACKWARD"):
        register(registry, "a-key", STRING)
    assert registry.levels == {"a-key": "FORWARD"}


def test_a_user_that_may_only_read_needs_no_more_where_all_is_made():
    class Closed(ReadOnly):
        is_closed = False

        def register(self, subject, schema):
            assert not self.is_closed
            return super().register(subject, schema)

    registry = Closed()
    registry.register("a-key", STRING)
    registry.levels["a-key"] = "BACKWARD"
    registry.is_closed = True

    assert is_registered(registry, "a-key", STRING)
    assert register(registry, "a-key", STRING) == 1
    assert not is_registered(registry, "a-key", {"type": "long"})


def test_a_level_that_cannot_be_set_is_named():
    with pytest.raises(ConfigError, match=r"subject a-key has no compatibility level.*rejects"):
        register(ReadOnly(), "a-key", STRING)

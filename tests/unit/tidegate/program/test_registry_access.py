"""Which rejections of a registry may pass: what it has accepted before, of the same kind."""

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate.program.registry_access import RegistryAccess, is_foreign

LOGIN = SchemaRegistryError(401, 401, "who are you?")
PAGE = SchemaRegistryError(403, -1, "<html>")
OWN = SchemaRegistryError(403, 40301, "not you")


@pytest.mark.parametrize("writes", [False, True])
def test_a_rejection_may_pass_where_such_a_call_was_accepted(writes):
    access = RegistryAccess()
    assert not any(access.may_pass(one, "a", writes=writes) for one in (LOGIN, PAGE, OWN))
    access.accept("a", writes=writes)
    assert all(access.may_pass(one, "a", writes=writes) for one in (LOGIN, PAGE, OWN))
    assert not any(access.may_pass(one, "a", writes=not writes) for one in (LOGIN, PAGE, OWN))
    assert [access.may_pass(one, "b", writes=writes) for one in (LOGIN, PAGE, OWN)] == [
        True, True, False
    ]  # fmt: skip


def test_a_proxys_answer_has_no_code_of_the_registry():
    assert [is_foreign(one) for one in (LOGIN, PAGE, OWN)] == [False, True, False]
    assert is_foreign(SchemaRegistryError(403, None, "no Route matched"))

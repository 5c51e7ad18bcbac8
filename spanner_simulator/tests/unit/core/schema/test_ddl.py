from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statements import DropTable
from spanner_simulator.errors import Code, SpannerError


def test_the_dialect_is_googlesql_unless_said_otherwise() -> None:
    assert parse_ddl("DROP TABLE `T`") == DropTable("T")


def test_one_dialects_quotes_are_not_the_others() -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl("DROP TABLE `T`", "POSTGRESQL")

    assert caught.value.code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)

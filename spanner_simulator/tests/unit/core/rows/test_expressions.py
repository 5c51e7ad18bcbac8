from __future__ import annotations

import pytest

from spanner_simulator.core.rows.expressions import NoExpressions
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def test_without_an_evaluator_an_expression_is_refused_by_name(shop) -> None:
    table = shop.table("T", ["K INT64"], "K")
    with pytest.raises(SpannerError, match=r"1 \+ 1 of table T") as caught:
        NoExpressions().evaluate(
            "1 + 1",
            table=table,
            row={},
            result=ValueType("INT64"),
            dialect="GOOGLE_STANDARD_SQL",
            now_us=1,
        )

    assert caught.value.code is Code.UNIMPLEMENTED

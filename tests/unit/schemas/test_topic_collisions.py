"""Names that cannot stand beside each other."""

import pytest

from tidegate.schemas.topic_collisions import topic_collisions, topics_of_one_name


@pytest.mark.parametrize(
    ("wanted", "existing", "expected"),
    [
        (["p.a", "p.b"], ["p_c"], {}),
        (["p.s.t", "p.s_t"], [], {"p.s_t": "p.s.t"}),
        (["p.s_t", "p.s.t"], [], {"p.s.t": "p.s_t"}),
        (["p.s_t"], ["p_s.t"], {"p.s_t": "p_s.t"}),
        (["p.s_t"], ["p_s.t", "p.s_t"], {}),
        (["p.s_t", "p.s.t", "p_s_t"], ["p.s_t"], {"p.s.t": "p.s_t", "p_s_t": "p.s_t"}),
        (["p.s-t"], ["p.s_t", "P.s-t"], {}),
    ],
)
def test_dots_and_underscores_are_one(wanted, existing, expected):
    assert topic_collisions(wanted, existing) == expected


@pytest.mark.parametrize(
    ("wanted", "existing", "expected"),
    [
        (["p.Orders", "p.Items"], ["p.s_t"], {}),
        (["p.Orders", "p.orders"], [], {"p.orders": "p.Orders"}),
        (["p.orders"], ["p.Orders"], {"p.orders": "p.Orders"}),
        (["p.orders"], ["p.Orders", "p.orders"], {}),
        (["p.s.T"], ["p.S.t", "p.S_t"], {"p.s.T": "p.S.t"}),
    ],
)
def test_upper_and_lower_case_are_one(wanted, existing, expected):
    assert topics_of_one_name(wanted, existing) == expected

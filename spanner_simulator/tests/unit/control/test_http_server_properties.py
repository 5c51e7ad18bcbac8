"""Whatever is sent to the control port, the answer is one of its own."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanner_simulator import Simulator
from spanner_simulator.control.verb import Verb, verbs_of
from spanner_simulator.control.verbs import Verbs
from unit.control.conftest import DDL, Port

VERBS = verbs_of(Verbs)
# Those that take what others need, or their time: they are tested by name.
SPARED = {"drop-database", "reset", "follow-commit-log", "churn"}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
LIKELY = st.sampled_from(
    ["bank", "Bank", "A", "Commit", "UNAVAILABLE", "slow", 0, 1, 10**400, -1, 0.5, ["5"], [], None]
)
FIXED = {"database": "bank", "stream": "Bank"}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Verb, dict[str, Any]]:
    verb = VERBS[draw(st.sampled_from(sorted(set(VERBS) - SPARED)))]
    names = [one.name for one in verb.arguments]
    chosen = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    arguments = {name: draw(LIKELY | JSON) for name in chosen}
    # Mostly the right database, or nothing beyond the first check would be met.
    likely = {name: value for name, value in FIXED.items() if name in names}
    return verb, arguments | (likely if draw(st.integers(0, 9)) else {})


@pytest.fixture(scope="module")
def port() -> Iterator[Port]:
    with Simulator(frozen_at="2026-01-01T00:00:00Z") as simulator:
        simulator.create_database("bank", ddl=DDL)
        yield Port(simulator)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(call=calls())
def test_any_arguments(port: Port, call: tuple[Verb, dict[str, Any]]) -> None:
    verb, arguments = call
    if verb.method == "POST":
        body = json.dumps(arguments, ensure_ascii=True).encode()
        status, answer = port.post(f"/{verb.name}", body)
    else:
        texts = {name: str(value) for name, value in arguments.items()}
        query = urllib.parse.urlencode(texts, errors="replace")
        status, answer = port.get(f"/{verb.name}?{query}")
    assert status in (200, 400, 404), (status, answer)
    if status != 200:
        assert answer["code"] not in ("INTERNAL", "UNKNOWN")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.binary(max_size=40))
def test_any_body(port: Port, body: bytes) -> None:
    status, _ = port.post("/freeze", body)
    assert status in (200, 400)

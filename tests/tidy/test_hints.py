"""Each error that an operator of the consumer meets says what to do."""

from __future__ import annotations

import ast
from pathlib import Path

from tidegate.lineage import errors as lineage_errors
from tidegate.schemas import errors as shared_errors
from tidegate.schemas.errors import InvariantViolation, SchemaError, TidegateError
from tidegate.spark_consumer import errors

CONSUMER = Path(__file__).parents[2] / "spark_consumer"
SAID_ELSEWHERE = (InvariantViolation, SchemaError, errors.RunStopped)
"""A bug, bytes that are described by their place, and what ends a run that is stopping anyway."""


def raised_without_hint():
    for path in sorted(CONSUMER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            name = getattr(node.exc.func, "id", "")
            modules = (errors, lineage_errors, shared_errors)
            kinds = [found for one in modules if (found := getattr(one, name, None)) is not None]
            if not kinds or not issubclass(kinds[0], TidegateError):
                continue
            hinted = any(keyword.arg == "hint" for keyword in node.exc.keywords)
            if not hinted and not issubclass(kinds[0], SAID_ELSEWHERE):
                yield f"{path.relative_to(CONSUMER)}:{node.lineno}: {name}"


def test_no_error_is_raised_without_a_hint():
    assert list(raised_without_hint()) == []

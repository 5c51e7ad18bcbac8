from __future__ import annotations

import pytest


def test_a_statement_that_is_refused_half_way_leaves_nothing_behind(make) -> None:
    made = make("CREATE TABLE P (k INT64) PRIMARY KEY (k)")
    made.refusal(
        "CREATE TABLE T (a INT64, CONSTRAINT c CHECK (a > 1), FOREIGN KEY (a) REFERENCES P (nope)) "
        "PRIMARY KEY (a)",
    )

    assert list(made.catalogue.tables) == ["p"]
    made.apply("CREATE TABLE T (a INT64, CONSTRAINT c CHECK (a > 1)) PRIMARY KEY (a)")


def test_analyze_changes_nothing(make) -> None:
    assert make("ANALYZE").ddl() == []


def test_a_failure_of_the_analyser_leaves_nothing_behind(make) -> None:
    class Broken:
        def mismatch(self, *_: object, **__: object) -> None:
            raise RecursionError

    made = make()
    made.catalogue.analysis = Broken()

    with pytest.raises(RecursionError):
        made.apply("CREATE TABLE T (a INT64, CHECK (a > 0)) PRIMARY KEY (a)")
    assert made.catalogue.tables == {}

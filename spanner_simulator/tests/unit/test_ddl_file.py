from __future__ import annotations

import pytest

from spanner_simulator.ddl_file import split_ddl


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ;; \n", []),
        ("CREATE TABLE A", ["CREATE TABLE A"]),
        ("CREATE A;\n\nCREATE B;", ["CREATE A", "CREATE B"]),
        ("-- one; two\nCREATE A # three;\n;/* four;\n */CREATE B", ["CREATE A", "CREATE B"]),
        ("A ';' B; C", ["A ';' B", "C"]),
        (r"A 'it\'s;' B; C", [r"A 'it\'s;' B", "C"]),
        ('A ";" `;` B; C', ['A ";" `;` B', "C"]),
        ("A ''' ' ; ''' B; C", ["A ''' ' ; ''' B", "C"]),
        ('A """ " ; """ B; C', ['A """ " ; """ B', "C"]),
        ("A '--' B; C", ["A '--' B", "C"]),
    ],
)
def test_google(text: str, statements: list[str]) -> None:
    assert split_ddl(text) == statements


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("CREATE A; CREATE B", ["CREATE A", "CREATE B"]),
        ("A 'it''s;' B; C", ["A 'it''s;' B", "C"]),
        (r"A '\'; B", [r"A '\'", "B"]),
        (r"A E'it\'s;' B; C", [r"A E'it\'s;' B", "C"]),
        (r"A e'it''s\\'; C", [r"A e'it''s\\'", "C"]),
        (r"A me'\'; C", [r"A me'\'", "C"]),
        ('A ";" B; C', ['A ";" B', "C"]),
        ("A $$;$$ B; C", ["A $$;$$ B", "C"]),
        ("A $x$ $$ ; $x$ B; C", ["A $x$ $$ ; $x$ B", "C"]),
        ("-- a;\nA /* ; */ B; C", ["A   B", "C"]),
        ("A # 1; B", ["A # 1", "B"]),
    ],
)
def test_postgres(text: str, statements: list[str]) -> None:
    assert split_ddl(text, "POSTGRESQL") == statements

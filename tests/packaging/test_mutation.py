"""What `./dev mutation` makes of code and tests; the faults themselves are cosmic-ray's."""

from __future__ import annotations

import pytest

from tests import mutation


@pytest.mark.parametrize(
    ("one", "other", "is_fault"),
    [
        ("def f(a: int | None): pass", "def f(a: int + None): pass", False),
        ("a: int | None = 1", "a: int / None = 1", False),
        ("def f() -> int | None: pass", "def f() -> int: pass", False),
        ("def f(a=1): pass", "def f(a=2): pass", True),
        ("a = 1 < 2", "a = 1 > 2", True),
        ("a = 1", "a = =", True),
    ],
)
def test_a_change_of_annotations_is_no_fault(one, other, is_fault):
    assert (mutation.meaning(one) != mutation.meaning(other)) == is_fault


def test_tests_that_import_the_module_come_first(tmp_path):
    for name, text in {
        "test_a.py": "from tidegate.producer.core.slot import Slot",
        "test_b.py": "from tidegate.producer.core import worker",
        "test_c.py": "from tidegate.producer.core.worker import Worker",
    }.items():
        (tmp_path / name).write_text(f"{text}\n")

    assert mutation.files_of(tmp_path, ["."], "producer/core/worker.py") == [
        *("test_b.py", "test_c.py", "test_a.py")
    ]
    assert mutation.files_of(tmp_path, ["test_a.py"], "") == ["test_a.py"]


def test_a_room_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit):
        mutation.main(["producer/kore"])

    assert "there is no producer/kore" in capsys.readouterr().err

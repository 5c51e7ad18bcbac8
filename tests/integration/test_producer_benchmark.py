"""The producer's benchmark on a real broker still runs."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks.producer import __main__ as program
from benchmarks.producer import scenarios

pytestmark = [pytest.mark.integration, pytest.mark.deep]


@pytest.fixture(autouse=True)
def _without_aims(monkeypatch):
    """How fast and how late it is is the machine's; what a small one takes is mostly the start."""
    monkeypatch.setattr(program, "misses", lambda _measured, **_: [])


def test_a_worker_is_measured(capsys, monkeypatch):
    # A tenth of them, which warms up, has to be whole messages of each stream partition.
    monkeypatch.setattr(scenarios, "_CHANGES", 4_000)
    names = ["kafka, 20 x 1", "kafka, split"]
    program.main(["--only", *names, "--rounds", "1", "--json"])

    found = {one["name"]: one["this"] for one in json.loads(capsys.readouterr().out)["measured"]}
    assert sorted(found) == sorted(names)
    assert found["kafka, 20 x 1"].keys() == {"cpu_us", "per_cpu_s", "per_s"}
    assert all(figure["min"] > 0 for one in found.values() for figure in one.values())


def test_a_backfill_is_measured_beside_one_of_fewer_rows(capsys, monkeypatch):
    (name,) = [one for one in scenarios.LARGE if "100000" in one]
    monkeypatch.setitem(program._ON_KAFKA, name, partial(scenarios._backfill, 30_000))
    program.main(["--only", name, "--rounds", "1", "--json"])

    found = json.loads(capsys.readouterr().out)["measured"][0]["this"]
    assert found.keys() == {
        "rows_per_s", "wall_s", "first_row_s", "cpu_s", "cpu_us", "most_mib", "most_of_fewer",
    }  # fmt: skip
    assert all(figure["min"] > 0 for figure in found.values())


def test_changes_are_parked(capsys, monkeypatch):
    monkeypatch.setattr(scenarios, "_PARKED_RATE", 100)
    monkeypatch.setattr(scenarios, "_PARKED_S", 3.0)
    program.main(["--only", "kafka, parked", "--rounds", "1", "--json"])

    (found,) = json.loads(capsys.readouterr().out)["measured"]
    assert found["this"]["p99_ms"]["median"] > 0

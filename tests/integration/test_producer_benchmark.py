"""The producer's benchmark on a real broker still runs: a worker program, and the floors."""

from __future__ import annotations

import json

import pytest

from benchmarks.producer import __main__ as program
from benchmarks.producer import scenarios

pytestmark = pytest.mark.integration


def test_a_worker_and_the_floors_are_measured(capsys, monkeypatch):
    # A tenth of them, which warms up, has to be whole messages of each stream partition.
    monkeypatch.setattr(scenarios, "_CHANGES", 4_000)
    monkeypatch.setattr(scenarios, "_FLOOR_CHANGES", 2_000)
    names = ["kafka, 20 x 1", "kafka, split", "floor, gRPC alone, 20 x 1", "floor, produce alone"]
    program.main(["--only", *names, "--rounds", "1", "--json"])

    found = {one["name"]: one["this"] for one in json.loads(capsys.readouterr().out)["measured"]}
    assert sorted(found) == sorted(names)
    assert found["kafka, 20 x 1"].keys() == {"cpu_us", "per_cpu_s", "per_s"}
    assert all(figure["min"] > 0 for one in found.values() for figure in one.values())

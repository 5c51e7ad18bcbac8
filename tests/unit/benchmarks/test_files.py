"""The benchmark of files still runs, on a few of them: each stage, and a worker to its end."""

from __future__ import annotations

import pytest

from benchmarks.producer.event_files import FORMS
from benchmarks.producer.files import FILES, measured


@pytest.mark.parametrize("form", FORMS)
def test_each_stage_takes_time(form):
    found = measured("stages", 400, form=form)
    assert all(found[name] > 0 for name in ("parse_us", "record_us", "translate_us"))
    assert abs(sum(found[name] for name in found if name != "cpu_us") - found["cpu_us"]) < 0.01


def test_a_worker_publishes_all_of_it():
    found = measured("worker", 400)
    assert found["cpu_us"] > 0
    assert found["most_mib"] > 10


def test_what_is_measured_has_its_names():
    assert list(FILES) == [
        "files, stages", "files, stages, JSON", "files, stages, gzip JSON",
        "files, worker", "files, worker, JSON", "files, worker, gzip JSON",
    ]  # fmt: skip

"""The benchmark of files still runs, on a few of them: each stage, and a worker to its end."""

from __future__ import annotations

from benchmarks.producer.files import FILES, measured, write_objects


def test_files_are_spread_over_objects_and_minutes(tmp_path):
    write_objects(tmp_path, 4_800)
    assert [one.name for one in sorted(tmp_path.iterdir())] == [
        f"bank_Accounts{number}" for number in range(4)
    ]
    assert len(list(tmp_path.rglob("*/*/*/*/*/*.avro"))) == 8


def test_each_stage_takes_time():
    found = measured("stages", 400)
    assert all(found[name] > 0 for name in ("parse_us", "record_us", "translate_us"))
    assert abs(sum(found[name] for name in found if name != "cpu_us") - found["cpu_us"]) < 0.01


def test_a_worker_publishes_all_of_it():
    found = measured("worker", 400)
    assert found["cpu_us"] > 0
    assert found["most_mib"] > 10


def test_what_is_measured_has_its_names():
    assert list(FILES) == ["files, stages", "files, worker"]

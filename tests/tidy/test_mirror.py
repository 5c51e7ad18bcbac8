"""Each source module has a test file of its own, and each unit test file a module that it tests."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

TESTS = REPOSITORY / "tests"

PACKAGES = (
    "schemas",
    "producer",
    "spark_consumer",
    "local_stack",
    "tidegate/lineage",
    "tidegate/program",
)

# Folders in which every module has its test file.
HELD = (
    "local_stack",
    "producer",
    "schemas",
    "spark_consumer",
    "tidegate/lineage",
    "tidegate/program",
)

# Modules without a test file of their own, each with the reason.
ELSEWHERE = {
    "*/__init__.py": "imports only",
    "*/__main__.py": "calls the command",
    "producer/core/effects.py": "only classes of fields: test_worker.py",
    "producer/core/events.py": "only classes of fields: test_worker.py",
    "producer/core/now.py": "only a class of fields: test_clock.py",
    "producer/commands/parts.py": "test_first_run.py and the demo run it",
    "producer/commands/redrive.py": "integration/test_parking.py runs it, test_cli.py reports",
    "producer/commands/run.py": "test_first_run.py and the demo run it",
    "producer/memory/message_limits.py": "producer/kafka/test_message_limits.py compares it",
    "producer/datastream_source/limits.py": "only a class of fields: test_file_ledger.py",
    "producer/ports.py": "protocols without behaviour",
    "producer/runtime_ports.py": "protocols without behaviour",
    "producer/records.py": "classes of fields; unreadable values: spanner/test_decode.py",
    "schemas/source_order.py": "a constant: sinks/delta/test_newest.py",
    "schemas/progress.py": "only classes of fields: test_progress_codec.py",
    "spark_consumer/core/batch_effects.py": "only classes of fields: test_batch_run.py",
    "spark_consumer/core/batch_events.py": "only classes of fields: test_batch_run.py",
    "spark_consumer/batch/ports.py": "protocols without behaviour",
    "spark_consumer/errors.py": "only classes",
    "spark_consumer/sinks/handed_batch.py": "a protocol without behaviour, and a class of fields",
    "spark_consumer/sinks/port.py": "protocols without behaviour, and classes of fields",
    "spark_consumer/sinks/kafka/port.py": "a protocol without behaviour, and a class of fields",
    "tidegate/lineage/errors.py": "only classes",
    "spark_consumer/spark/session.py": "needs Spark's own launcher: test_spark_submit.py",
}


def modules(*folders: str) -> list[str]:
    return [
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    ]


def places_of_tests(module: str) -> list[Path]:
    """Return where a module's test file may be; those with Spark or S3 have their own folders."""
    path = Path(module)
    places = [TESTS / "unit" / path.parent / f"test_{path.stem}.py"]
    if path.is_relative_to("spark_consumer"):
        within = path.relative_to("spark_consumer").parent
        places.append(TESTS / "spark" / within / f"test_{path.stem}.py")
        places.append(TESTS / "s3" / f"test_{path.stem}.py")
    return places


def test_every_module_has_its_test_file():
    held = [
        module
        for module in modules(*HELD)
        if not any(fnmatch(module, pattern) for pattern in ELSEWHERE)
    ]

    assert len(held) > 100
    assert [m for m in held if not any(place.exists() for place in places_of_tests(m))] == []


def test_every_test_file_has_its_module():
    """The tests of a module move with it."""
    tests = [
        REPOSITORY / prefix / path.relative_to(TESTS / root)
        for root, prefix, folders in (("unit", "", PACKAGES), ("spark", "spark_consumer", ("*",)))
        for folder in folders
        for path in sorted((TESTS / root).glob(f"{folder}/**/test_*.py"))
        # Properties look at several modules at once.
        if not path.stem.endswith("_properties")
    ]

    assert len(tests) > 100
    assert [shown(path) for path in tests if not is_of_a_module(path)] == []


def is_of_a_module(test: Path) -> bool:
    """Whether a test file, put beside the sources, has a module or a package of its name."""
    name = test.stem.removeprefix("test_")
    return test.with_name(f"{name}.py").exists() or test.with_name(name).is_dir()


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_every_exception_is_needed():
    everything = modules(*PACKAGES)
    needed = {
        pattern
        for pattern in ELSEWHERE
        for module in everything
        if fnmatch(module, pattern) and not any(place.exists() for place in places_of_tests(module))
    }

    assert set(ELSEWHERE) - needed == set()

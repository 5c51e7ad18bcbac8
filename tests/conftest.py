"""What every test may use, and the reason given where a test is skipped for lack of Java."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tidegate.producer.driver.runtime import TaskThread

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("patient", settings.get_profile("default"), deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parent.parent

JAVA_MARKERS = ("integration", "spark")

# Linux lists a process's threads here; elsewhere open clients are not detected.
THREADS = Path("/proc/self/task")
# As long as the publisher and the membership wait for a client's call before they give it up.
CLIENT_END_S = 60.0
REFERRERS_MAX = 8

# Threads in which the product leaves a client behind that hangs (`KafkaPublisher._bounded`,
# `GroupMonitor`).  After its broker was down, librdkafka has been seen never to return.
ABANDONED = ("kafka-call", "kafka-discard", "group-monitor")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top folder of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def tasks() -> Iterator[TaskThread]:
    """What queries are read by; one loop for all tests, as gRPC shares one poller among loops."""
    running = TaskThread()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def no_kafka_client_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that ends with more Kafka clients than it began with.

    A client that stays open tries to reach its broker until the process ends, and writes a line for
    each attempt.  Clients of fixtures with a wider scope exist before this fixture.
    """
    before, failed_before = open_kafka_clients(), request.session.testsfailed
    threads_before = set(threading.enumerate())
    yield
    # The traceback of a failed test keeps its variables alive.
    if open_kafka_clients() <= before or request.session.testsfailed > failed_before:
        return
    end = time.monotonic() + CLIENT_END_S
    while True:
        # Each time: a thread of the test that is about to end may hold a client until then.
        gc.collect()
        if open_kafka_clients() - abandoned_kafka_clients() <= before:
            return
        if time.monotonic() > end:
            if abandoned_kafka_clients():
                return  # its callbacks refer to all other clients of its worker
            started = [one for one in threading.enumerate() if one not in threads_before]
            pytest.fail(
                "the test has left a Kafka client open: close it, or drop what refers to it; "
                f"its threads: {[_where(one) for one in started]}; "
                f"alive, each with what refers to it: {kafka_clients_alive()}"
            )
        time.sleep(0.1)


def _where(thread: threading.Thread) -> str:
    """Name a thread and the functions that it stands in, the innermost last."""
    frame = sys._current_frames().get(thread.ident or 0)
    names = [one.name for one in traceback.extract_stack(frame)] if frame is not None else []
    return f"{thread.name} in {' > '.join(names[-4:])}"


def kafka_clients_alive() -> list[str]:
    """Name the types of the Kafka clients that something still refers to, and of what does.

    None, beside a client that is open: the client is closing.
    """
    import confluent_kafka as kafka
    import confluent_kafka.admin

    clients = (kafka.Consumer, kafka.Producer, kafka.admin.AdminClient)
    alive = [one for one in gc.get_objects() if isinstance(one, clients)]
    return [" < ".join([type(one).__qualname__, *_referrers(one, but=alive)]) for one in alive]


def _referrers(target: object, *, but: object) -> list[str]:
    """Name what refers to an object, what refers to that, and so on: each time the first found."""
    names: list[str] = []
    seen = {id(but), id(names), id(target)}
    while len(names) < REFERRERS_MAX:
        get_referrers = [
            one
            for one in gc.get_referrers(target)
            if id(one) not in seen and not isinstance(one, types.FrameType | types.ModuleType)
        ]
        if not get_referrers:
            break
        target = get_referrers[0]
        seen |= {id(get_referrers), id(target)}
        is_function = isinstance(target, types.FunctionType | types.MethodType)
        names.append(target.__qualname__ if is_function else type(target).__qualname__)
    return names


def open_kafka_clients() -> int:
    """Count the clients of librdkafka in this process: each has one main thread of this name."""
    if "confluent_kafka" not in sys.modules or not THREADS.exists():
        return 0
    return sum(_name(thread) == "rdk:main" for thread in THREADS.iterdir())


def abandoned_kafka_clients() -> int:
    """Count the clients that the publisher has given up."""
    return sum(thread.name in ABANDONED for thread in threading.enumerate())


def _name(thread: Path) -> str:
    try:
        return (thread / "comm").read_text().strip()
    except OSError:  # it has ended
        return ""


class ProgressFile:
    """Writes which tests have begun, failed and ended, for a run that is ended from outside.

    Beside the JUnit results, which pytest writes at its end only; `lanes` reads it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def _write(self, word: str, nodeid: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{word} {nodeid}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write("ended", nodeid)


def pytest_configure(config: pytest.Config) -> None:
    results = config.getoption("xmlpath", None)
    # In a run of several processes the first one sees every test.
    if results and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ProgressFile(Path(f"{results}.progress")))
    # The developer's own settings must not change the outcome of a test.
    for name in list(os.environ):
        if name.startswith(("TIDEGATE_LOCAL_", "TIDEGATE_PRODUCER_", "TIDEGATE_CONSUMER_")):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need Java, with the reason, where no supported Java is found."""
    wanted = [item for item in items if any(item.get_closest_marker(name) for name in JAVA_MARKERS)]
    if not wanted:
        return
    from tidegate.local_stack.parts.installed_java import find_java
    from tidegate.schemas.errors import TidegateError

    try:
        java = find_java()
    except TidegateError as error:
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=str(error)))
        return
    # Spark's scripts look at JAVA_HOME and PATH only.
    os.environ["JAVA_HOME"] = str(java.home)

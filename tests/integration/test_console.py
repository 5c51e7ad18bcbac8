"""The console on a live fleet: what each page shows, over HTTP and in a browser.

`TIDEGATE_PICTURES=FOLDER` keeps what the browser shows; the pictures of docs/how-to/console.md are
made so.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.integration.shared_stack import (
    PATIENCE_S,
    now,
    open_shared_stack,
    release,
    run_producer,
    running,
    until,
)
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.process import choose_ports
from tidegate.producer.cli.console.command import serve
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.config import FleetConfig

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

SEEN = "CREATE TABLE Seen (Id INT64, Name STRING(20), V INT64) PRIMARY KEY (Id, Name)"
PULSE = "CREATE TABLE Pulse (Id INT64, V INT64) PRIMARY KEY (Id)"
TIMED = "CREATE TABLE Timed (Id INT64, Since TIMESTAMP) PRIMARY KEY (Id)"
DDL = [SEEN, PULSE, "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')"]
PATHS = ("/", "/partitions", "/workers", "/parked", "/releases", "/change")


@dataclass(frozen=True, slots=True)
class Console:
    """A console that is served, and the pipeline that it shows."""

    address: str
    pipeline: Pipeline | None = None

    def page(self, path: str, **query: str) -> str:
        """Return a page's text, without its tags."""
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", f"{path}?{urlencode(query)}")
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, text
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())

    def wait_for(self, path: str, text: str) -> str:
        """Return a page once it shows a text."""
        until(lambda: text in self.page(path), lambda: self.page(path), patience_s=60)
        return self.page(path)


@contextlib.contextmanager
def served(pipeline: Pipeline, **settings: Any) -> Any:
    """Serve the console of a pipeline."""
    programs, addresses, stopping = pipeline.programs, [], threading.Event()
    config = FleetConfig.load(
        bootstrap_servers=programs.bootstrap_servers,
        registry_url=programs.registry_url,
        prefix=programs.prefix,
    )
    console = ConsoleConfig.load(port=0, refresh_s=0.5, **settings)
    serving = threading.Thread(
        target=serve,
        args=(config, console),
        kwargs={"stopping": stopping, "show": addresses.append},
    )
    serving.start()
    try:
        until(lambda: addresses, patience_s=30)
        yield Console(addresses[0], pipeline)
    finally:
        stopping.set()
        serving.join()


@contextlib.contextmanager
def pulse(database):
    """Write a few rows again and again, now more, now fewer."""
    stopping = threading.Event()

    def write():
        number = 0
        while not stopping.wait(0.2):
            number += 1
            rows = [(key, number) for key in range(4 + number * 7 % 30)]
            with database.batch() as batch:
                batch.insert_or_update("Pulse", ("Id", "V"), rows)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield database
    finally:
        stopping.set()
        writing.join()


@contextlib.contextmanager
def fleet(stack, ports):
    """Run a worker for each port, which serves its metrics there."""
    pipeline, start = Pipeline(stack.programs(PRODUCER_SLOTS=4)), now()
    try:
        for name, port in ports.items():
            programs = stack.programs(PRODUCER_SLOTS=4, PRODUCER_METRICS_PORT=port)
            worker = programs.worker(name, start=start)
            pipeline.workers.append(worker)
            worker.start()
            # The first one creates the topics, in which the splits below are published.
            until(lambda: f"{stack.prefix}-progress" in stack.topics())
        yield pipeline
    finally:
        assert pipeline.stop() == []


AUDIT = {
    "proved": True, "release": 0, "changes": 800, "mismatches": [], "mismatches_not_listed": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def live(kafka_and_registry, spark, tmp_path_factory):
    """A fleet of two workers with splits and a merge, an output, and an audit's result."""
    folder = tmp_path_factory.mktemp("console")
    ports = choose_ports({"w1": 0, "w2": 0})
    audit = folder / "audit.json"
    audit.write_text(json.dumps(AUDIT))
    metrics = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    with (
        open_shared_stack(kafka_and_registry, folder, stream_partitions=3) as stack,
        pulse(stack.create_database(DDL)) as database,
        fleet(stack, ports) as pipeline,
        served(
            pipeline,
            output=str(pipeline.programs.output),
            audit=str(audit),
            worker_metrics=metrics,
        ) as console,
    ):
        control, last_us = stack.control(), 0
        for number in range(40):
            with database.batch() as batch:
                batch.insert_or_update(
                    "Seen", ("Id", "Name", "V"), [(key, "é<b>", number) for key in range(20)]
                )
            last_us = commit_time_us(batch.committed)
            if number % 8 == 5:
                control.split()
            if number == 30:
                control.merge()
            time.sleep(0.5)
        release(spark, pipeline, last_us)
        console.wait_for("/", "Running")
        yield console


def test_the_overview_follows_the_stream(live):
    found = live.page("/")
    assert "2 workers" in found
    assert "/changeStreams/Feed" in found
    assert "proved audit of" in found
    assert re.search(r"[0-9.]+ s watermark lag", found)
    assert re.search(r"[0-9.]+ d until unpublished changes expire", found)
    assert "newest release, of" in found
    until(lambda: "Watermark lag now" in live.page("/"), patience_s=30)


def test_the_lineage_has_splits_and_the_merge(live):
    until(lambda: "finished" in live.page("/partitions"), patience_s=60)
    found = live.page("/partitions")
    assert re.search(r"[0-9]+ open, [0-9]+ finished", found)
    slot = re.search(r"(\d) w[12] open", found)
    assert slot is not None
    assert f"of slots {slot[1]}-{slot[1]}" in live.page("/partitions", slots=slot[1])


def test_workers_say_what_they_do(live):
    found = live.page("/workers")
    assert re.search(r"w1 yes [0-9, ]+ ", found)
    assert "What they say of themselves 127" in re.sub(r"metrics of .*? expire in ", "", found)
    assert "Nothing was retried" in found or "Retried since they started" in found


def test_a_change_is_found_with_its_offset_and_its_release(live):
    found = live.page("/change", table="Seen", key='[7, "é<b>"]', hours="1")
    assert "40 changes of this key in" in found
    assert "800 records were read" in found
    assert '"V": 39' in found
    assert "none yet" not in found
    wrong = live.page("/change", table="Nowhere", key="7")
    assert "there is no topic" in wrong


def test_nothing_is_parked_and_releases_are_listed(live):
    assert "Nothing is set aside" in live.page("/parked")
    found = live.page("/releases")
    assert "Last audit: proved 800 changes up to release 0" in found
    assert "Seen changelog changelog/" in found


def test_a_stream_that_has_not_begun_is_shown_as_such(shared_stack):
    with served(Pipeline(shared_stack.programs())) as console:
        found = console.wait_for("/", "The stream has not begun")
        assert "Start a worker" in found
        for path in PATHS:
            assert "Not started" in console.page(path)


def test_a_pause_is_shown_with_who_asked_for_it(shared_stack):
    shared_stack.create_database(DDL)
    programs = shared_stack.programs(PRODUCER_SLOTS=4)
    with running(programs) as pipeline, served(pipeline) as console:
        console.wait_for("/", "Running")
        done = run_producer(programs, "pause", "--by", "ann")
        assert done.returncode == 0, done.stderr
        assert "Paused by ann at" in console.wait_for("/", "Resume it")
        assert run_producer(programs, "resume").returncode == 0
        console.wait_for("/", "Running")


def test_a_stream_partition_that_stopped_is_shown_with_its_error(shared_stack):
    """By default a change that cannot be published stops its stream partition."""
    database = shared_stack.create_database([TIMED, DDL[-1]])
    programs = shared_stack.programs(PRODUCER_SLOTS=4, PRODUCER_TIMESTAMPS="micros")
    with running(programs) as pipeline, served(pipeline) as console:
        console.wait_for("/", "Running")
        with database.batch() as batch:
            batch.insert("Timed", ("Id", "Since"), [(1, "2026-01-01T00:00:00.123456789Z")])
        assert "SchemaError" in console.wait_for("/", "Failed")
        assert "microsecond" in console.page("/partitions")


# ---------------------------------------------------------------- in a browser

WIDTHS = (1440, 390)
NAMES = {"/": "overview", "/change": "change"}


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium; skipped where it is not installed."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no browser: type apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    profile = tempfile.mkdtemp()
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
        "disable-dev-shm-usage", "hide-scrollbars", f"user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def show(browser, console, path, *, width, scheme):
    """Load a page as a browser of this width and colour scheme does."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 1_000, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(console.address.rstrip("/") + path)


def keep(browser, name):
    """Keep a picture of the whole page, if a folder for it is given."""
    folder = os.environ.get("TIDEGATE_PICTURES")
    if folder:
        import base64

        shot = browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True}
        )
        Path(folder, f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def faults(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] != "DEBUG"]


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_its_width_without_an_error(live, browser, width, scheme):
    asked = {"/change": "?" + urlencode({"table": "Seen", "key": '[7, "é<b>"]'})}
    for path in PATHS:
        show(browser, live, path + asked.get(path, ""), width=width, scheme=scheme)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, path
        assert faults(browser) == [], path
        keep(browser, f"{path.strip('/') or 'overview'}-{width}-{scheme}")


@pytest.mark.deep
def test_the_page_follows_the_stream_until_it_is_paused(live, browser):
    show(browser, live, "/", width=1_440, scheme="light")

    def time_shown():
        return browser.find_element("id", "head").text

    first = time_shown()
    until(lambda: time_shown() != first, patience_s=60)
    button = browser.find_element("id", "updates")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    time.sleep(1.0)  # a request that was under way is over
    paused = time_shown()
    time.sleep(3.0)
    assert time_shown() == paused
    button.click()
    until(lambda: time_shown() != paused, patience_s=60)
    assert faults(browser) == []


@pytest.mark.deep
def test_the_keyboard_reaches_everything(live, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(browser, live, "/partitions", width=1_440, scheme="light")
    reached = []
    for _ in range(12):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(browser.switch_to.active_element.text)
    assert reached[0] == "Skip to the content"
    assert {"Overview", "Workers", "Find a change", "30 min"} <= set(reached)


@pytest.mark.deep
def test_a_key_is_typed_and_its_values_are_opened(live, browser):
    show(browser, live, "/change", width=390, scheme="light")
    browser.find_element("id", "table").send_keys("Seen")
    browser.find_element("id", "key").send_keys('[7, "é<b>"]')
    browser.find_element("css selector", "form button").click()
    until(lambda: browser.find_elements("css selector", "details"), patience_s=60)
    details = browser.find_elements("css selector", "details")[-1]
    details.find_element("tag name", "summary").click()
    assert '"V": 39' in details.text
    assert faults(browser) == []


@pytest.mark.deep
def test_a_console_that_has_ended_says_so(shared_stack, browser):
    with served(Pipeline(shared_stack.programs())) as console:
        show(browser, console, "/", width=1_440, scheme="light")
    until(
        lambda: "away" in (browser.find_element("tag name", "body").get_attribute("class") or ""),
        patience_s=PATIENCE_S,
    )

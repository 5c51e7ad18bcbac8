"""Which session is started, and with which settings; no Spark is started."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES
from tidegate.spark_consumer.library import session as module
from tidegate.spark_consumer.library.session import session
from tidegate.spark_consumer.spark import session as sessions


@pytest.fixture
def calls(monkeypatch):
    """What was called, with which arguments."""
    found = []

    def note(name):
        return lambda *positional, **named: found.append((name, *positional, named)) or name

    monkeypatch.setattr(module, "require_spark", note("check"))
    monkeypatch.setattr(module, "require_session", note("session check"))
    monkeypatch.setattr(module, "require_iceberg", note("iceberg check"))
    monkeypatch.setattr(sessions, "local_session", note("local"))
    monkeypatch.setattr(sessions, "submitted_session", note("submitted"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return found


def test_a_local_session_has_the_packages_and_is_checked_before_and_after(calls):
    assert session() == "local"
    assert calls == [
        ("check", {"jars": ""}),
        (
            "local",
            {
                "master": "local[*]",
                "packages": SPARK_PACKAGES,
                "jars": "",
                "app_name": "tidegate",
                "settings": {},
            },
        ),
        ("session check", "local", {}),
    ]


def test_settings_become_the_texts_that_spark_reads(calls):
    session(
        "bank", master="local[2]", jars="a.jar",
        **{"spark.driver.memory": "4g", "spark.ui.enabled": True},
        **{"spark.sql.shuffle.partitions": 8},
    )  # fmt: skip
    given = calls[1][1]
    assert (given["app_name"], given["master"], given["jars"]) == ("bank", "local[2]", "a.jar")
    assert given["settings"] == {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
    }


def test_with_iceberg_it_has_the_package_and_is_checked_for_it(calls):
    assert session(iceberg=True) == "local"
    assert calls[1][1]["packages"] == f"{SPARK_PACKAGES},{ICEBERG_PACKAGES}"
    assert calls[-1] == ("iceberg check", "local", {})


def test_under_spark_submit_the_submitters_master_and_packages_are_kept(calls, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session(**{"spark.sql.shuffle.partitions": 8}) == "submitted"
    assert calls[1] == (
        "submitted",
        {"app_name": "tidegate", "settings": {"spark.sql.shuffle.partitions": "8"}},
    )


def test_what_is_no_setting_of_spark_is_refused_before_anything_starts(calls):
    with pytest.raises(ConfigError, match=r"driver_memory: not a setting of Spark"):
        session(driver_memory="4g")
    assert calls == []

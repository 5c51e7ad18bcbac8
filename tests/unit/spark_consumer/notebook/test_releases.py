"""The frame of an output's releases, from manifests on this machine; no Spark is started."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pandas as pd
import pytest

from tidegate.program import extras
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.notebook.releases import releases, releases_in
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    drop_manifests,
    manifest_name,
    write_manifest,
)
from tidegate.spark_consumer.sinks.port import TableVersion

SECOND = 1_000_000


class Folder:
    def __init__(self, path):
        self._path = path

    def write_json(self, name, content):
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    def read_json(self, name):
        path = self._path / name
        return json.loads(path.read_text()) if path.exists() else None

    def delete(self, names):
        for name in names:
            (self._path / name).unlink(missing_ok=True)


@pytest.fixture
def publish(tmp_path):
    """Write a release of ten seconds, published `lag_s` after its end, with rows by table."""

    def publish(number, rows, *, lag_s=2.0, sink="changelog", after_us=None):
        begin_us = number * 10 * SECOND
        after_us, through_us = begin_us if after_us is None else after_us, begin_us + 10 * SECOND
        tables = {
            table: {sink: TableVersion(f"{sink}/{table}", number, count)}
            for table, count in rows.items()
        }
        known = sum(count or 0 for count in rows.values()) or 7
        manifest = Manifest(number, "q", number, after_us, through_us, known, tables)
        write_manifest(Folder(tmp_path), manifest)
        published_ns = round((through_us / SECOND + lag_s) * 1_000_000_000)
        os.utime(tmp_path / manifest_name(number), ns=(published_ns, published_ns))

    return publish


def test_a_release_is_a_row_with_its_bounds_its_lag_and_the_rows_of_each_table(publish, tmp_path):
    publish(0, {"accounts": 3}, after_us=-1)
    publish(1, {"accounts": 0, "sales.orders": 5}, lag_s=0.25)

    found = releases(None, tmp_path)

    assert list(found.columns) == [
        *("release", "after", "through", "published", "lag_s", "rows"),
        *("rows.accounts", "rows.sales.orders"),
    ]
    assert found["release"].tolist() == [0, 1]
    assert found["rows"].tolist() == [3, 5]
    assert found["rows.accounts"].tolist() == [3, 0]
    # Not known yet is no row.
    assert found["rows.sales.orders"].tolist() == [0, 5]
    assert found["lag_s"].tolist() == [2.0, 0.25]
    assert pd.isna(found["after"][0])
    assert found["after"][1] == found["through"][0] == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert found["published"][1] == datetime(1970, 1, 1, 0, 0, 20, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("sink", ["changelog", "parquet"])
def test_rows_are_those_of_a_sink_that_counts_them(publish, tmp_path, sink):
    publish(0, {"accounts": 4}, sink=sink)

    assert releases(None, str(tmp_path))["rows.accounts"].tolist() == [4]


def test_rows_that_no_sink_counts_are_missing_and_not_nothing(publish, tmp_path):
    publish(0, {"accounts": None}, sink="mirror")

    found = releases(None, tmp_path)

    assert found["rows"].tolist() == [7]
    assert found["rows.accounts"].isna().tolist() == [True]


def test_the_newest_ones_are_read_of_those_that_are_kept(publish, tmp_path):
    for number in range(6):
        publish(number, {"accounts": 1})

    assert releases(None, tmp_path, last=2)["release"].tolist() == [4, 5]
    for _ in range(2):
        drop_manifests(Folder(tmp_path), before=3)
    assert releases(None, f"file:{tmp_path}")["release"].tolist() == [3, 4, 5]


def test_what_a_run_drops_meanwhile_is_left_out(publish, tmp_path):
    for number in range(4):
        publish(number, {"accounts": 1})

    class Dropping(LocalFolder):
        """Loses its first release as soon as it is known which ones are kept."""

        looks = 0

        def read_json(self, name):
            found = super().read_json(name)
            self.looks += name.endswith("_first")
            if self.looks == 3:
                (tmp_path / manifest_name(0)).unlink(missing_ok=True)
            return found

    assert releases_in(Dropping(tmp_path))["release"].tolist() == [1, 2, 3]


def test_a_watermark_that_nanoseconds_cannot_hold_is_a_time_all_the_same(tmp_path):
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    through_us = int(end.timestamp()) * SECOND
    write_manifest(Folder(tmp_path), Manifest(0, "q", 0, 5, through_us, 0, {}))

    assert releases(None, tmp_path)["through"][0] == end


def test_what_cannot_be_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"no release manifest.*nowhere") as caught:
        releases(None, tmp_path / "nowhere")
    assert "some seconds" in caught.value.hint
    with pytest.raises(ConfigError, match=r"on this machine only.*releases\(spark"):
        releases(None, "s3a://lake/bank")
    with pytest.raises(ConfigError, match=r"last must be 1 or more.*last=0"):
        releases(None, tmp_path, last=0)
    monkeypatch.setattr(extras, "is_installed", lambda name: name != "pandas")
    with pytest.raises(ConfigError, match=r'pandas: not installed.*"tidegate\[notebook\]"'):
        releases(None, tmp_path)

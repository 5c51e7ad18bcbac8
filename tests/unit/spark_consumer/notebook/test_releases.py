"""The frame of an output's releases, from manifests on this machine, and its picture."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.patches import StepPatch

from tests.unit.spark_consumer.disk_folder import DiskFolder
from tidegate.program import extras
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.notebook.release_figure import plot_releases
from tidegate.spark_consumer.notebook.releases import releases, releases_in
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    drop_manifests,
    manifest_name,
    write_manifest,
)
from tidegate.spark_consumer.sinks.port import TableVersion

SECOND = 1_000_000


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
        write_manifest(DiskFolder(tmp_path), manifest)
        published_ns = round((through_us / SECOND + lag_s) * 1_000_000_000)
        os.utime(tmp_path / manifest_name(number), ns=(published_ns, published_ns))

    return publish


def test_a_release_is_a_row_with_its_bounds_its_lag_and_the_rows_of_each_table(publish, tmp_path):
    publish(0, {"accounts": 3}, after_us=-1)
    publish(1, {"accounts": 0, "sales.orders": 5}, lag_s=0.25)

    frame_of_releases = releases(None, tmp_path)

    assert list(frame_of_releases.columns) == [
        *("release", "after", "through", "published", "lag_s", "rows"),
        *("rows.accounts", "rows.sales.orders"),
    ]
    assert frame_of_releases["release"].tolist() == [0, 1]
    assert frame_of_releases["rows"].tolist() == [3, 5]
    assert frame_of_releases["rows.accounts"].tolist() == [3, 0]
    # Not known yet is no row.
    assert frame_of_releases["rows.sales.orders"].tolist() == [0, 5]
    assert frame_of_releases["lag_s"].tolist() == [2.0, 0.25]
    assert pd.isna(frame_of_releases["after"][0])
    assert (
        frame_of_releases["after"][1]
        == frame_of_releases["through"][0]
        == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    )
    assert frame_of_releases["published"][1] == datetime(1970, 1, 1, 0, 0, 20, 250_000, tzinfo=UTC)


def test_rows_are_those_of_a_sink_that_counts_them_or_missing(publish, tmp_path):
    for sink, count in (("changelog", 4), ("parquet", 4), ("mirror", None)):
        publish(0, {"accounts": count}, sink=sink)
        frame_of_releases = releases(None, str(tmp_path))
        (rows,) = frame_of_releases["rows.accounts"]
        assert frame_of_releases["rows"].tolist() == [count or 7]
        assert pd.isna(rows) if count is None else rows == count


def test_the_newest_ones_are_read_of_those_that_are_kept(publish, tmp_path):
    for number in range(6):
        publish(number, {"accounts": 1})

    assert releases(None, tmp_path, last=2)["release"].tolist() == [4, 5]
    for _ in range(2):
        drop_manifests(DiskFolder(tmp_path), before=3)
    for scheme in ("file:", "file://"):
        assert releases(None, f"{scheme}{tmp_path}")["release"].tolist() == [3, 4, 5]


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
    write_manifest(DiskFolder(tmp_path), Manifest(0, "q", 0, 5, through_us, 0, {}))

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


# ---------------------------------------------------------------- the picture
def frame(**tables):
    count = len(next(iter(tables.values())))
    rows = [
        sum(count for count in column if count) for column in zip(*tables.values(), strict=True)
    ]
    return pd.DataFrame({
        "release": range(5, 5 + count),
        "lag_s": [float(n) for n in range(count)],
        "rows": rows,
        **{f"rows.{name}": pd.array(column, dtype="Int64") for name, column in tables.items()},
    })  # fmt: skip


def shapes(axes):
    """The height of each shape above the one that it stands on, by its label."""
    steps = {patch.get_label(): patch.get_data() for patch in patches(axes)}
    return {name: (top - base).tolist() for name, (top, _, base) in steps.items()}


def patches(axes):
    return [patch for patch in axes.get_children() if isinstance(patch, StepPatch)]


def test_it_shows_the_lag_of_each_release_and_the_rows_of_each_table_one_on_the_other():
    figure = plot_releases(frame(accounts=[1, 2, 0], ledger=[4, 0, 9]))
    above, below = figure.axes
    (line,) = above.get_lines()
    assert line.get_xdata().tolist() == [5, 6, 7]
    assert line.get_ydata().tolist() == [0.0, 1.0, 2.0]
    assert shapes(below) == {"ledger": [4, 0, 9], "accounts": [1, 2, 0]}
    top, edges, _ = patches(below)[1].get_data()
    assert top.tolist() == [5, 2, 9]
    assert edges.tolist() == [4.5, 5.5, 6.5, 7.5]
    assert [text.get_text() for text in below.get_legend().get_texts()] == ["ledger", "accounts"]
    stored = io.BytesIO()
    figure.savefig(stored, format="png")
    shown, _ = DisplayFormatter().format(figure)
    for picture in (stored.getvalue(), shown["image/png"]):
        assert picture.startswith(b"\x89PNG")


def test_the_smaller_ones_of_many_tables_are_added_up():
    figure = plot_releases(frame(**{f"t{n}": [n + 1, 0] for n in range(11)}))

    steps = shapes(figure.axes[1])
    assert list(steps) == [*(f"t{n}" for n in range(10, 2, -1)), "3 other tables"]
    assert steps["3 other tables"] == [1 + 2 + 3, 0]


def test_without_the_rows_of_each_table_it_shows_those_of_all():
    for given in (frame(a=[1, None]), frame(a=[1, 2])[["release", "lag_s", "rows"]]):
        assert shapes(plot_releases(given).axes[1]) == {"all tables": given["rows"].tolist()}


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"no lag_s, rows.*tidegate\.releases"):
        plot_releases(pd.DataFrame({"release": [1]}))
    with pytest.raises(ConfigError, match=r"no release, lag_s, rows"):
        plot_releases("/lake")
    monkeypatch.setattr(extras, "is_installed", lambda name: name != "matplotlib")
    with pytest.raises(ConfigError, match=r'matplotlib: not installed.*"tidegate\[notebook\]"'):
        plot_releases(frame(a=[1]))

"""What the picture of releases shows; it is drawn in memory."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.patches import StepPatch

from tidegate.program import extras
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.notebook.release_figure import plot_releases


def frame(**tables):
    count = len(next(iter(tables.values())))
    rows = [sum(one for one in column if one) for column in zip(*tables.values(), strict=True)]
    return pd.DataFrame({
        "release": range(5, 5 + count),
        "lag_s": [float(n) for n in range(count)],
        "rows": rows,
        **{f"rows.{name}": pd.array(one, dtype="Int64") for name, one in tables.items()},
    })  # fmt: skip


def shapes(axes):
    """The height of each shape above the one that it stands on, by its label."""
    found = {one.get_label(): one.get_data() for one in patches(axes)}
    return {name: (top - base).tolist() for name, (top, _, base) in found.items()}


def patches(axes):
    return [one for one in axes.get_children() if isinstance(one, StepPatch)]


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


def test_it_is_stored_as_a_png():
    stored = io.BytesIO()
    plot_releases(frame(accounts=[3])).savefig(stored, format="png")

    assert stored.getvalue().startswith(b"\x89PNG")


def test_a_notebook_shows_it_as_a_png():
    shown, _ = DisplayFormatter().format(plot_releases(frame(accounts=[3])))

    assert shown["image/png"].startswith(b"\x89PNG")


def test_the_smaller_ones_of_many_tables_are_added_up():
    figure = plot_releases(frame(**{f"t{n}": [n + 1, 0] for n in range(11)}))

    found = shapes(figure.axes[1])
    assert list(found) == [*(f"t{n}" for n in range(10, 2, -1)), "3 other tables"]
    assert found["3 other tables"] == [1 + 2 + 3, 0]


@pytest.mark.parametrize("tables", [{"a": [1, None]}, {}])
def test_without_the_rows_of_each_table_it_shows_those_of_all(tables):
    given = frame(**tables) if tables else frame(a=[1, 2])[["release", "lag_s", "rows"]]

    assert shapes(plot_releases(given).axes[1]) == {"all tables": given["rows"].tolist()}


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"no lag_s, rows.*tidegate\.releases"):
        plot_releases(pd.DataFrame({"release": [1]}))
    with pytest.raises(ConfigError, match=r"no release, lag_s, rows"):
        plot_releases("/lake")
    monkeypatch.setattr(extras, "is_installed", lambda name: name != "matplotlib")
    with pytest.raises(ConfigError, match=r'matplotlib: not installed.*"tidegate\[notebook\]"'):
        plot_releases(frame(a=[1]))

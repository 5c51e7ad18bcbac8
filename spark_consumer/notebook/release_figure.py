"""A picture of an output's releases: their lag, and the changes of each."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.notebook.releases import EXTRA, ROWS_OF

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


_TABLES_SHOWN = 8
"""Colours repeat soon after; the smaller tables are added up."""
_SIZE_INCHES = (9.0, 5.0)
_NEEDED = ("release", "lag_s", "rows")


def require_plots() -> None:
    """Raise ConfigError, which names the extra, if matplotlib or pandas is missing."""
    Extra(EXTRA, ("matplotlib", "pandas")).require()


def plot_releases(releases: DataFrame) -> Figure:
    """Draw what `tidegate.releases` returned: the watermark's lag above, the rows of tables below.

    Returns a matplotlib figure, which a notebook shows and `savefig` stores.  It opens no window.
    Raises ConfigError if matplotlib is missing, and for a frame without these columns.
    """
    require_plots()
    from matplotlib.backends.backend_agg import (  # noqa: PLC0415 - an extra, checked above
        FigureCanvasAgg,
    )
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, checked above

    columns: Any = getattr(releases, "columns", ())
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise ConfigError(
            f"plot_releases: the frame has no {', '.join(missing)}",
            hint="Give what tidegate.releases(spark, output) returns",
        )

    class ReleaseFigure(Figure):
        """Shows itself in a notebook: only pyplot would teach IPython to show any figure."""

        def _repr_png_(self) -> bytes:
            stored = BytesIO()
            self.savefig(stored, format="png")
            return stored.getvalue()

    # Made without pyplot, which would keep it open and show it a second time.
    figure = ReleaseFigure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_lag(above, releases)
    _draw_rows(below, releases)
    return figure


def _draw_lag(axes: Axes, releases: DataFrame) -> None:
    axes.plot(releases["release"], releases["lag_s"], marker=".", linewidth=1)
    # Below zero only where the clocks of Spanner and of the storage differ.
    lowest = releases["lag_s"].min()
    axes.set_ylim(bottom=min(0, lowest))
    axes.set_ylabel("watermark lag, s")
    axes.set_title("From the end of a release in commit time to its manifest")
    axes.grid(visible=True, alpha=0.3)


def _draw_rows(axes: Axes, releases: DataFrame) -> None:
    numbers = releases["release"].to_numpy()
    edges = [*(numbers - 0.5), numbers[-1] + 0.5] if len(numbers) else [0, 1]
    base = releases["rows"].to_numpy() * 0
    for label, rows in _by_table(releases).items():
        top = base + rows
        # One shape for each table: a bar for each release would take seconds.
        axes.stairs(top, edges, baseline=base, fill=True, label=label)
        base = top
    axes.set_ylim(bottom=0)
    axes.set_ylabel("changes")
    axes.set_xlabel("release")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", fontsize="small")


def _by_table(releases: DataFrame) -> dict[str, Any]:
    """Return the rows by table, the largest first; all in one where tables are not counted."""
    counted = releases.filter(regex=f"^{ROWS_OF.replace('.', '[.]')}")
    if counted.empty or counted.isna().to_numpy().any():
        return {"all tables": releases["rows"].to_numpy()}
    largest = counted.sum().sort_values(ascending=False, kind="stable").index
    shown, unshown = list(largest[:_TABLES_SHOWN]), list(largest[_TABLES_SHOWN:])
    rows = {name.removeprefix(ROWS_OF): counted[name].to_numpy(dtype="int64") for name in shown}
    if unshown:
        rest = counted[unshown].sum(axis=1).to_numpy(dtype="int64")
        rows[f"{len(unshown)} other tables"] = rest
    return rows

"""Draws the pictures of docs/benchmarks.md from the JSON in benchmarks/results/.

    ./dev pictures

Each picture says, in its own text, of which file it was drawn: a test compares the two.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_ROOT = Path(__file__).resolve().parents[1]
RESULTS = _ROOT / "benchmarks" / "results"
ASSETS = _ROOT / "docs" / "assets"
_OURS, _THEIRS, _PLAIN = "#3f51b5", "#c8791d", "#7a7a7a"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tidegate",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Readable on white and on the dark scheme of the site.
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _PLAIN),
    "axes.edgecolor": _PLAIN,
    "savefig.transparent": True,
}


def main() -> int:
    """Draw every picture whose figures are there."""
    with mpl.rc_context(_STYLE):
        for name, draw in PICTURES.items():
            source = RESULTS / f"{name}.json"
            if not source.exists():
                continue
            figure = draw(json.loads(source.read_text()))
            path = ASSETS / f"benchmark-{name}.svg"
            figure.savefig(
                path, bbox_inches="tight", metadata={"Date": None, "Description": digest(source)}
            )
            plt.close(figure)
            print(path.relative_to(_ROOT))
    return 0


def digest(source: Path) -> str:
    """Return what a picture says of the file that it was drawn from."""
    return f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()}"


def _color(name: str) -> str:
    return _OURS if name.startswith("tidegate") else _THEIRS


def _bars(axes: Axes, measured: Sequence[Mapping[str, Any]], figure: str, title: str) -> None:
    """Draw a bar for each measurement, the median, with a line from the least to the most."""
    shown = [one for one in measured if figure in one]
    names = [one["name"] for one in shown]
    medians = [one[figure]["median"] for one in shown]
    ends = [
        [one[figure]["median"] - one[figure]["min"] for one in shown],
        [one[figure]["max"] - one[figure]["median"] for one in shown],
    ]
    colors = [_color(name) for name in names]
    bars = axes.barh(names, medians, xerr=ends, color=colors, ecolor=_PLAIN, height=0.6)
    axes.bar_label(bars, fmt=lambda value: f"{value:,.3g}" if value < 100 else f"{value:,.0f}",
                   padding=6)  # fmt: skip
    axes.set_title(title, loc="left", fontsize=9)
    axes.margins(x=0.2)


def _panels(figures: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any]:
    """Return what draws a panel of bars for each figure, beside each other in two columns."""

    def draw(found: Mapping[str, Any]) -> Any:
        rows = -(-len(figures) // 2)
        height = 0.7 + 0.28 * len(found["measured"])
        picture, grid = plt.subplots(rows, 2, figsize=(9, rows * height), sharey=True)
        for axes, (figure, title) in zip(grid.flat, figures.items(), strict=False):
            _bars(axes, found["measured"], figure, title)
        grid.flat[0].invert_yaxis()
        picture.tight_layout()
        return picture

    return draw


def _known(values: Iterable[float | None]) -> list[float]:
    """Return values of a line, which has a gap where there is none."""
    return [float("nan") if value is None else value for value in values]


_SOAK = (("mib", "memory, MiB"), ("files", "open files"), ("threads", "threads"))


def _soak(found: Mapping[str, Any]) -> Any:
    """Draw what programs held over time, the lag, and when faults were."""
    samples = found["samples"]
    minutes = [one["at_s"] / 60 for one in samples]
    picture, panels = plt.subplots(len(_SOAK) + 1, 1, figsize=(9, 8), sharex=True)
    names = sorted({name for one in samples for name in one["programs"]})
    shown = [name for name in names if name not in {"spanner", "registry"}]
    for axes, (figure, title) in zip(panels, _SOAK, strict=False):
        for name in shown:
            held = _known(one["programs"].get(name, {}).get(figure) for one in samples)
            axes.plot(minutes, held, label=name, linewidth=1.2)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_ylim(bottom=0)
    panels[0].legend(ncols=len(shown), frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    panels[-1].plot(minutes, _known(one["lag_s"] for one in samples), color=_OURS, linewidth=1.2)
    panels[-1].set_title("newest release is behind by, s", loc="left", fontsize=9)
    panels[-1].set_xlabel("minutes")
    for axes in panels:
        for fault in found["faults"]:
            axes.axvline(fault["at_s"] / 60, color=_THEIRS, alpha=0.35, linewidth=0.8)
    picture.tight_layout()
    return picture


PICTURES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "debezium-backlog": _panels(
        {
            "per_s": "changes a second",
            "warm_cpu_us": "µs of CPU a change, warm",
            "mib": "memory at the end, MiB",
            "bytes": "bytes in Kafka a change",
        }
    ),
    "debezium-steady": _panels(
        {
            "p50_s": "delay, p50, s",
            "p99_s": "delay, p99, s",
            "after_split_s": "most delay after a split, s",
            "cores": "cores at 1,000 changes a second",
            "away_s": "away after a SIGKILL, s",
            "repeated": "changes repeated after it",
        }
    ),
    "debezium-lake": _panels(
        {
            "cpu_us": "µs of CPU a change, with the start",
            "twice": "changes that are there twice",
            "out_of_order": "changes after a later commit",
            "torn": "transactions in parts",
        }
    ),
    "soak": _soak,
}


if __name__ == "__main__":
    sys.exit(main())

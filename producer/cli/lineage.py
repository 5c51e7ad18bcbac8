"""`tidegate-producer lineage`: the descent of stream partitions, as a tree or a graph."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.markup import escape
from rich.tree import Tree

from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.lineage.lineage_graph import LineageGraph, Relative, lineage_graph
from tidegate.producer.cli.fleet_reader import read_fleet
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339

_TOKEN_MAX = 28
_TOKEN_END = 20
"""Characters at the end of a token that are shown: tokens of one stream begin alike."""
_STYLES = {
    PartitionCondition.OPEN: "green",
    PartitionCondition.WAITING: "yellow",
    PartitionCondition.STOPPED: "red",
    PartitionCondition.FINISHED: "dim",
}
_COLOURS = {
    PartitionCondition.OPEN: "#d5f0d5",
    PartitionCondition.WAITING: "#fdf3c8",
    PartitionCondition.STOPPED: "#f8d0d0",
    PartitionCondition.FINISHED: "#eeeeee",
}


def lineage(config: ProducerConfig, *, generations: int | None) -> LineageGraph:
    """Return the graph as of the progress topic's end; raises as `read_fleet` does."""
    fleet = read_fleet(config)
    stream = fleet.started.stream
    return lineage_graph(fleet.view, fleet.history, stream=stream, generations=generations)


def as_json(graph: LineageGraph) -> str:
    """Return the graph as one JSON object."""
    return json.dumps(asdict(graph), ensure_ascii=False)


def as_tree(graph: LineageGraph, *, now_us: int) -> Tree:
    """Return a tree for a terminal; with several parents, a subtree is below the first one."""
    children = graph.children()
    root = Tree(f"stream {escape(graph.stream)}")
    shown: set[str] = set()
    waiting = [(root, relative) for relative in reversed(children.get("", ()))]
    while waiting:
        above, relative = waiting.pop()
        style = _STYLES[relative.condition]
        if relative.token in shown:
            above.add(f"[{style}]{escape(short(relative.token))}[/], see above")
            continue
        shown.add(relative.token)
        node = above.add(
            f"[{style}]{escape(short(relative.token))}[/] {_described(relative, now_us)}"
        )
        waiting += [(node, child) for child in reversed(children.get(relative.token, ()))]
    if graph.left_out:
        root.add(f"{graph.left_out} that finished earlier are not shown (--generations)")
    return root


def as_mermaid(graph: LineageGraph, *, now_us: int) -> str:
    """Return a flow chart for Mermaid, from parents to children."""
    lines = ["flowchart TD"]
    for place, relative in enumerate(graph.partitions):
        label = f"{short(relative.token)}<br/>{_described(relative, now_us)}".replace('"', "#quot;")
        lines.append(f'    p{place}["{label}"]:::{relative.condition.value}')
    lines += [f"    p{parent} --> p{child}" for parent, child in _edges(graph)]
    lines += [
        f"    classDef {condition.value} fill:{colour},stroke:#555"
        for condition, colour in _COLOURS.items()
    ]
    return "\n".join(lines) + "\n"


def as_dot(graph: LineageGraph, *, now_us: int) -> str:
    """Return a graph for Graphviz, from parents to children; the tooltips have the whole tokens."""
    lines = ["digraph lineage {", "    node [shape=box, style=filled, fontname=monospace];"]
    for place, relative in enumerate(graph.partitions):
        label = (
            _quoted(short(relative.token))[:-1] + "\\n" + _quoted(_described(relative, now_us))[1:]
        )
        lines.append(
            f"    p{place} [label={label}, tooltip={_quoted(relative.token)}, "
            f'fillcolor="{_COLOURS[relative.condition]}"];'
        )
    lines += [f"    p{parent} -> p{child};" for parent, child in _edges(graph)]
    return "\n".join([*lines, "}"]) + "\n"


def _edges(graph: LineageGraph) -> list[tuple[int, int]]:
    places = {relative.token: place for place, relative in enumerate(graph.partitions)}
    return [
        (places[parent], place)
        for place, relative in enumerate(graph.partitions)
        for parent in relative.parents
        if parent in places
    ]


def _described(relative: Relative, now_us: int) -> str:
    """Return its state, times, slot and lag as text."""
    if relative.end_us is not None:
        end = _time(relative.end_us, now_us)
        return f"{relative.condition.value}, {_time(relative.start_us, now_us)} to {end}"
    since = f"{relative.condition.value} since {_time(relative.start_us, now_us)}"
    if relative.watermark_us is None:
        return f"{since}, slot {relative.slot}"
    lag_s = (now_us - relative.watermark_us) / US_PER_SECOND
    return f"{since}, slot {relative.slot}, behind {lag_s:.1f} s"


def _time(us: int, now_us: int) -> str:
    """Return an instant to the second, without the date if it is today's."""
    date, _, time = _second(us).partition("T")
    today = _second(now_us).partition("T")[0]
    return time if date == today else f"{date} {time}"


def _second(us: int) -> str:
    return format_rfc3339(us // US_PER_SECOND * US_PER_SECOND * NS_PER_US)


def short(token: str) -> str:
    """Return a token with its middle left out where it is long."""
    if len(token) <= _TOKEN_MAX:
        return token
    return f"{token[: _TOKEN_MAX - _TOKEN_END - 1]}…{token[-_TOKEN_END:]}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

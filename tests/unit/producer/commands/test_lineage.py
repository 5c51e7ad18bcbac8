"""`lineage` prints the same graph as a tree, for Mermaid, for Graphviz and as JSON."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tests.unit.producer.commands.test_environment import started
from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.lineage.lineage_graph import LineageGraph, Relative
from tidegate.producer.commands.lineage import as_dot, as_json, as_mermaid, as_tree, lineage
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.topics import slot_of

LONG = "__8BAYEG0qQD8AABgsBDg3MDRhXzYxMjI1NTg1"
NOW_US = 9_500_000
GRAPH = LineageGraph(
    "projects/p/s",
    (
        Relative("left", 0, (), PartitionCondition.FINISHED, 0, 4_000_000, None),
        Relative("right", 1, ("gone",), PartitionCondition.STOPPED, 0, None, 4_000_000),
        Relative(LONG, 1, ("left", "right"), PartitionCondition.WAITING, 4_000_000, None, None),
        Relative('b"[r]', 0, (LONG,), PartitionCondition.OPEN, 5_000_000, None, 9_000_000),
    ),
    left_out=7,
)
SHORT = "__8BAYE…MDRhXzYxMjI1NTg1"


def printed(graph):
    console = Console(width=100)
    with console.capture() as capture:
        console.print(as_tree(graph, now_us=NOW_US))
    return capture.get()


def test_a_tree_shows_each_once_and_fits_a_hundred_columns():
    text = printed(GRAPH)
    lines = text.splitlines()
    assert lines[0] == "stream projects/p/s"
    assert max(map(len, lines)) <= 100
    (whole, again) = [line for line in lines if LONG[-20:] in line]
    assert "waiting since 00:00:04Z, slot 1" in whole
    assert again.endswith("see above")
    assert text.count('b"[r] open since 00:00:05Z, slot 0, behind 0.5 s') == 1
    assert "7 that finished earlier are not shown" in lines[-1]


def test_an_instant_of_another_day_has_its_date():
    console = Console(width=100)
    with console.capture() as capture:
        console.print(as_tree(GRAPH, now_us=NOW_US + 86_400_000_000))
    assert "waiting since 1970-01-01 00:00:04Z, slot 1" in capture.get()


def test_a_flow_chart_has_each_edge_to_a_parent_that_is_shown():
    lines = as_mermaid(GRAPH, now_us=NOW_US).splitlines()
    assert lines[0] == "flowchart TD"
    assert [line.strip() for line in lines if "-->" in line] == [
        "p0 --> p2",
        "p1 --> p2",
        "p2 --> p3",
    ]
    assert '    p3["b#quot;[r]<br/>open since 00:00:05Z, slot 0, behind 0.5 s"]:::open' in lines
    assert sum("classDef" in line for line in lines) == len(PartitionCondition)


def test_a_graph_for_graphviz_has_the_whole_token_as_tooltip():
    text = as_dot(GRAPH, now_us=NOW_US)
    assert text.startswith("digraph lineage {")
    assert text.endswith("}\n")
    assert f'tooltip="{LONG}"' in text
    assert 'label="b\\"[r]\\nopen since' in text
    assert "    p1 -> p2;" in text


def test_json_has_all_of_it():
    found = json.loads(as_json(GRAPH))
    assert found["left_out"] == 7
    assert [one["token"] for one in found["partitions"]][2] == LONG
    assert found["partitions"][0]["condition"] == "finished"


@pytest.mark.parametrize("generations", [0, None])
def test_it_reads_the_progress_topic_and_asks_spanner_nothing(place, generations):
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    place.record(started(config.stream_path))
    child = ChildPartition("a", (), 5_000_000)
    slot = slot_of("a", 4)
    place.record(ProgressRecord("epoch-1", "w1", PartitionAnnounced(child, "")), slot=slot)

    found = lineage(config, generations=generations)
    assert found.stream == config.stream_path
    assert [(one.token, one.slot, one.condition) for one in found.partitions] == [
        ("p", slot_of("p", 4), PartitionCondition.WAITING),  # which `started` names
        ("a", slot, PartitionCondition.WAITING),
    ]

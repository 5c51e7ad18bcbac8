"""Seeds pass, the same seed is the same run, and what they meet is what they should meet.

`SIM_SEEDS` sets how many are run; `make sim SEEDS=n` runs any number.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.simulation.poison import TOO_FINE
from tests.simulation.runner import failure_report, run_seed, story
from tests.simulation.world import World
from tidegate.producer.memory.broker import TOMBSTONE
from tidegate.producer.spanner.table_rows import BACKFILL_TAG
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.progress import PartitionAnnounced

KEPT = [
    int(line.split(maxsplit=1)[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
SEEDS = range(1_001, 1_001 + int(os.environ.get("SIM_SEEDS", "200")))


@pytest.mark.rule("P1", "P2", "P4", "P5", "P6")
@pytest.mark.parametrize("seed", [*KEPT, *SEEDS])
def test_seed(seed):
    verdict = run_seed(seed)

    assert verdict.has_passed, "\n".join(failure_report(verdict))


@pytest.mark.parametrize("seed", [3, 27, 62])
def test_a_seed_is_a_run(seed):
    assert list(story(seed)) == list(story(seed))


def test_a_traced_run_is_the_run():
    traced, silent = World(5, is_traced=True).run(), World(5).run()

    assert traced.published == silent.published
    assert traced.released == silent.released


WANTED = {
    "fault killed", "fault started again", "fault stopped", "fault continued", "fault replaced",
    "fault session expired", "fault transaction timed out", "fault drain", "fault moved",
    "fault clock set", "fault token refused", "fault query silent",
    "fault its group client is stuck",
    "fault queries end after what they repeat", "ReportStopped", "fault added", "fault dropped",
    "fault table added", "fault table dropped",
    "exit fenced", "exit drained", "exit its name belongs to another process",
    "TransactionAborted", "CommitOutcomeUnknown", "ProducerFenced", "SlotsRevoked", "SlotsLost",
    "QueryFailed", "QueryEnded", "bounded", "merged", "finished", "equal instants", "compacted",
    "rows of a backfill", "rows of a chunk that change later",
    "a view of the fleet", "queued", "turn ended", "paused", "ReportWaiting",
    "SetLateAside", "StoreSegment", "CompactSegments", "WriteRelease", "MergeMirror",
    "fault the mirror stands at an older release",
    "fault a mirror joins",
    "step late", "step pending", "step sink-mirror", "step manifest", "step state",
    "fault the request failed", "fault killed before the rename", "fault a foreign commit",
    "fault stands still beside another run", "fault a replaced run wrote late",
    "RejoinGroup", "ReplaceGroupClient",
    "fault limit raised", "fault limit lowered", "fault message refused",
    "fault a record is too large", "fault a change is poison", "a poison change parked",
    "a large change parked", "a good change parked", "parked keys of two parents",
    "a stream partition in both forms", "nanoseconds as text", "poison with nanoseconds",
    "fault schema refused", "a change parked for a refused column", "fault too many parked keys",
    "fault redrive started", "fault redrive killed", "exit RedriveFailed",
    "exit redriven: some keys stay parked", "exit redriven: no key stays parked",
    "a change put back",
    "fault accept-gap started", "exit gaps accepted", "exit EndedInGap", "exit GapNotAccepted",
    "a change given up", "a transaction given up in part",
    "fault a part of a slot is read again", "fault a right is lost for a while",
    "fault data expires", "fault a topic grows", "fault a topic is deleted",
    "fault a topic is re-created", "fault the progress topic is re-created",
    "fault the change stream's retention passes",
    "exit TopicsChangedError", "exit ProgressLost", "exit ConfigError", "held PositionExpired",
    "data refused by the reader", "data skipped by the reader",
    "fault the stream is paused", "fault the stream is resumed", "fault a worker is drained",
    "exit drained, and left", "ReportPause",
    "fault segment deleted", "fault segment emptied", "fault segment halved",
    "fault segment swapped", "fault segment changed", "a damaged segment refused",
    "fault killed in the middle of a segment",
    "fault a copy with other content", "a conflict of copies refused",
    "fault a record lost after Kafka", "fault a record added after Kafka",
    "a transaction that is not whole refused",
    "fault a transaction lost after Kafka", "a lost transaction refused",
}  # fmt: skip
"""What the simulation has to do, as `met_in` names it."""
MET_IN = (8, 10, 20, 40, 45, 50, 58, 62, 77, 100, 102, 119, 153, 159, 194, 216, 285, 289, 474)
"""Seeds that together meet all of it."""
_SEEDS_MAX = 400


def has_both_forms(world):
    forms = defaultdict(set)
    for topic in world.data_topics:
        for _, _, entry in world.ground.entries(topic):
            if entry.value is TOMBSTONE:
                continue
            header = entry.value.origin
            forms[header or origin_of(world.decode(entry.value).token)].add(bool(header))
    return any(len(form) > 1 for form in forms.values())


def is_given_up_in_part(history):
    """Whether records of a transaction were published, and others lie in a gap."""
    transactions = {True: set(), False: set()}
    given_up = history.given_up
    for change in history.within if given_up else ():
        transaction = change.commit_timestamp_us, change.transaction
        transactions[change.order_key in given_up].add(transaction)
    return bool(transactions[True] & transactions[False])


def met_in(world):
    history = world.history
    met = {f"{kind} {what}" for _, _, _, kind, what in world.trace if kind in ("fault", "exit")}
    met |= {type(what).__name__ for _, _, _, kind, what in world.trace}
    met |= {f"step {what.name}" for _, _, _, kind, what in world.trace if kind == "step"}
    parked = history.parked
    counters = [node.worker.counters.counts for node in world.nodes]
    announced = [body for body in history.bodies if isinstance(body, PartitionAnnounced)]
    values = [value for change in history.published for value in (change.columns or {}).values()]
    times = {change.commit_timestamp_us for change in history.committed}

    def is_refused(what):
        return any(what in text for text in history.reported_losses)

    met_now = {
        "bounded": history.end_us is not None,
        "merged": any(len(fact.parents) > 1 for fact in history.lineage.values()),
        "finished": history.finishes,
        "rows of a backfill": any(
            change.transaction.startswith(BACKFILL_TAG) for change in history.committed
        ),
        "rows of a chunk that change later": any(map(later_changes(history), history.published)),
        "equal instants": len(history.committed) > len(times),
        "compacted": world.compacted,
        "a poison change parked": any(change.reason == "SchemaError" for change in parked),
        "a change parked for a refused column": any(
            change.reason == "SchemaError" and change.order_key not in history.poison
            for change in parked
        ),
        "a stream partition in both forms": has_both_forms(world),
        "nanoseconds as text": any(isinstance(v, str) and v.endswith("789Z") for v in values),
        "poison with nanoseconds": TOO_FINE in world.poison.met,
        "a large change parked": any(change.reason == "MessageTooLarge" for change in parked),
        "a good change parked": any(change.reason == "KeyParked" for change in parked),
        "a change put back": history.redriven,
        "parked keys of two parents": any(
            announcement.parked_keys and len(announcement.child.parents) > 1
            for announcement in announced
        ),
        "a view of the fleet": any(len(sight.lowest_us) > 1 for sight in history.fleet_sights),
        "queued": history.queued,
        "paused": any(counts["paused"] for counts in counters),
        "turn ended": any(counts["turn_ended"] for counts in counters),
        "held PositionExpired": any(stop.error == "PositionExpired" for stop in history.stops),
        "data refused by the reader": history.reported_losses,
        "a damaged segment refused": is_refused("pending segment"),
        "a conflict of copies refused": is_refused("same order key"),
        "a transaction that is not whole refused": is_refused("records than they state"),
        "a lost transaction refused": is_refused("completion marker states"),
        "a change given up": history.given_up,
        "a transaction given up in part": is_given_up_in_part(history),
        "data skipped by the reader": history.skipped,
    }
    return met | {what for what, is_met in met_now.items() if is_met}


def later_changes(history):
    newest = {}
    for change in history.committed:
        newest[change.topic, change.key] = change.order_key
    beside = history.read_beside

    def changes_later(change):
        data = beside.get(change.topic)
        return data is not None and change.order_key < newest.get((data, change.key), b"")

    return changes_later


def test_every_fault_and_every_way_of_going_on_is_met():
    """A simulation that never does the hard thing proves nothing.

    The seeds that once met it all are tried first, all others only for what they meet no more.
    """
    met = set()
    for seed in (*MET_IN, *range(1, _SEEDS_MAX + 1)):
        if met >= WANTED:
            break
        world = World(seed, is_traced=True)
        world.run()
        met |= met_in(world)

    assert not WANTED - met

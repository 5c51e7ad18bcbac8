"""Worlds of Datastream's files: from a seed, files arrive late, twice and out of order.

The source's table meets what the documentation has (`datastream_table`).  `run_world` lets the
production reading and core read its files, with deaths at any step.  `judge` compares what was
published with what the source did.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.datastream_files import (
    ADDED_COLUMN,
    SOURCES,
    avro_bytes,
    delivered,
    json_bytes,
    of_one_schema,
)
from tests.datastream_folder import minute_folder
from tests.datastream_model import ObjectModel
from tests.datastream_table import SourceTable, drawn_table
from tidegate.producer.datastream.event_records import time_and_turn
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE, SourceLimits
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.source_order import CHANGES_BEGIN_WITH

_FIRST_MINUTE = 1_700_000_000_000_000 // US_PER_MINUTE
_SHAKEN_MS = 60_000


@dataclass
class World:
    """What a seed made."""

    source: str
    seed: int
    table: SourceTable
    changes: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    events: list = field(default_factory=list)
    """As delivered: copies and rows of a backfill included."""
    late_files: int = 0
    model: ObjectModel | None = None
    deaths: int = 0


def run_world(seed, *, source=None, late_files=None, deaths=True, growing=False, **model):
    """Return the world of a seed after all of it was read and published.

    `growing`: many files are first there in part, cut anywhere, or are written a second time; the
    times of MySQL, whose order has none in it, run backwards and forwards.
    """
    rng = random.Random(seed)
    source = source or rng.choice(SOURCES)
    table = drawn_table(source, rng, changes=rng.randrange(20, 60), rows=rng.choice((0, 0, 6)))
    world = World(source, seed, table, table.changes, table.backfill)
    if growing and source == "mysql":
        _shake_times(world.changes, random.Random(f"times {seed}"))
    world.events = delivered(world.changes, world.rows, rng)
    has_late_files = rng.random() < 0.4 if late_files is None else late_files
    arrivals = _arrivals(world, rng, has_late_files=has_late_files)
    if growing:
        arrivals = sorted(_in_parts(arrivals, random.Random(-seed - 1)))
    start_us = (_FIRST_MINUTE - 1) * US_PER_MINUTE
    limits = SourceLimits(
        open_minutes=20, lateness_us=rng.choice((2, 20)) * US_PER_MINUTE, late_hours=4
    )
    one = world.model = ObjectModel(now_us=start_us, start_us=start_us, limits=limits, **model)
    dying = rng.choice((0.0, 0.005, 0.02)) if deaths else 0.0
    end_us = start_us + 400 * US_PER_MINUTE
    while arrivals or one.clock.now_us < end_us:
        while arrivals and arrivals[0][0] <= one.clock.now_us:
            at_us, path, data = arrivals.pop(0)
            one.files.put(path, data, modified_us=at_us)
        if not one.step():
            quiet_us = rng.choice((1, 10, 60)) * 1_000_000
            if not arrivals:
                quiet_us = 20 * US_PER_MINUTE
            elif rng.random() < 0.2:
                quiet_us = max(arrivals[0][0] - one.clock.now_us, quiet_us)
            one.clock.now_us += quiet_us
        if rng.random() < 0.3:
            one.commit()
        if rng.random() < dying:
            one.die()
            world.deaths += 1
    one.run()
    one.counts += one.query._reading.counts
    return world


def _arrivals(world, rng, *, has_late_files):
    """Return (time, path, content) of each file, by time."""
    found, number, at = [], 0, 0
    form = rng.choice(("avro", "jsonl"))
    while at < len(world.events):
        some = of_one_schema(world.events[at : at + rng.randrange(1, 6)])[0]
        at += len(some)
        minute = _FIRST_MINUTE + number // 2
        delay_us = rng.choice((0, 1, 40, 130)) * 1_000_000
        if has_late_files and rng.random() < 0.15:
            delay_us += rng.choice((28, 45, 70, 130)) * US_PER_MINUTE
            world.late_files += 1
        data = avro_bytes(world.source, some) if form == "avro" else json_bytes(some)
        path = f"root/shop_orders/{minute_folder(minute)}/{rng.getrandbits(24):06x}_{number}.{form}"
        found.append(((minute + 1) * US_PER_MINUTE + delay_us, path, data))
        number += 1
    return sorted(found)


def _shake_times(changes, rng):
    """Move the times of changes by less than the shortest lateness."""
    for event in changes:
        event["source_timestamp"] += rng.randrange(_SHAKEN_MS)
        event["sort_keys"][0] = event["source_timestamp"]


def _in_parts(arrivals, rng):
    """Yield arrivals, many of them twice within the time for which a folder is open."""
    for at_us, path, data in arrivals:
        if rng.random() < 0.5:
            cut = rng.randrange(len(data))
            of_lines = data.rfind(b"\n", 0, cut) + 1 if path.endswith("l") else cut
            yield at_us, path, data[: rng.choice((0, cut, of_lines, of_lines, len(data)))]
            yield at_us + rng.choice((1, 30, 300)) * 1_000_000, path, data
        else:
            yield at_us, path, data


def source_rows(world):
    """Return what the rows hold that the source has in the end, by key.

    Of a table without a key it is what each event holds, by uuid.
    """
    if world.table.clauses.has_key:
        return {key: _content(row) for key, row in world.table.rows.items()}
    return {event["uuid"]: _content(event["payload"]) for event in (*world.changes, *world.rows)}


def newest_rows(world):
    """Return what the rows hold that have the highest order, by key; deletions left out."""
    newest = {}
    for message, _ in world.model.published:
        record = message.value
        (mod,) = record.mods
        order = record.server_transaction_id
        (key,) = mod.keys.values()
        if key not in newest or order > newest[key][0]:
            newest[key] = order, record.mod_type, _row(message)
    has_key = world.table.clauses.has_key
    return {
        int(key) if has_key else key: _content(row)
        for key, (_, kind, row) in newest.items()
        if kind != "DELETE"
    }


def _content(row):
    """Return what two rows are compared by; without a key, both ids and notes are."""
    return int(row["id"]), row["note"], row.get(ADDED_COLUMN)


def judge(world):
    """Return a line for each thing that is wrong."""
    model, found = world.model, []
    records = Counter()
    for message, _ in model.published:
        records[message.value.server_transaction_id[-25:]] += 1
    twice = [place for place, count in records.items() if count > 1]
    if twice:
        found.append(f"published twice: {twice[:3]}")
    uuids = Counter(_row(message)["_datastream_uuid"] for message, _ in model.published)
    sent = {event["uuid"] for event in world.events}
    if set(uuids) != sent:
        found.append(f"lost: {sorted(sent - set(uuids))[:3]}, new: {sorted(set(uuids) - sent)[:3]}")
    if not world.late_files and (copies := [one for one, count in uuids.items() if count > 1]):
        found.append(f"copies were published: {copies[:3]}")
    if len(model.published) + model.filtered != len(world.events):
        found.append(f"{len(model.published)} + {model.filtered} of {len(world.events)} events")
    for message, watermark_us in model.published:
        if message.value.commit_timestamp_ns // 1_000 <= watermark_us:
            found.append(f"released at or below the watermark: {message.value}")
            break
    if newest_rows(world) != source_rows(world):
        found.append(f"rows: {newest_rows(world)} and not {source_rows(world)}")
    if not model.counts["late_events"]:
        found += _out_of_order(world)
    return found + _falling_times(world)


def _row(message):
    (mod,) = message.value.mods
    return {**mod.keys, **mod.new_values, **mod.old_values}


def _falling_times(world):
    """Compare the release times of changes with the source's order.

    Left out is what came in a place that was over: behind it in the order, something was released.
    """
    changes = [one.value for one, _ in world.model.published]
    changes = [
        change for change in changes if change.server_transaction_id.startswith(CHANGES_BEGIN_WITH)
    ]
    changes.sort(key=lambda one: one.server_transaction_id)
    found, least_ns = [], math.inf
    for one in reversed(changes):
        if _first_open_ns(one) <= least_ns < one.commit_timestamp_ns:
            found.append(f"{one.server_transaction_id} is released behind a later one")
        least_ns = min(least_ns, one.commit_timestamp_ns)
    return found


def _first_open_ns(record):
    return time_and_turn(record.record_sequence)[0] * NS_PER_US


def _out_of_order(world):
    """Compare the order of each key in the order of release with the source's."""
    place = {event["uuid"]: number for number, event in enumerate(world.changes, 1)}
    keys = defaultdict(list)
    for message, _ in sorted(world.model.published, key=lambda one: one[0].order_key):
        row = _row(message)
        at = place.get(row["_datastream_uuid"], 0)
        if at or not world.late_files:  # a row of a backfill in a late file is behind changes
            keys[int(row["id"])].append(at)
    return [f"key {key} released as {seen}" for key, seen in keys.items() if seen != sorted(seen)]

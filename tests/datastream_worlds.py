"""Worlds of Datastream's files: from a seed, files arrive late, twice and out of order.

`run_world` lets the production reading and core read them, with deaths at any step.  `judge`
compares what was published with what the source did.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.datastream_files import (
    SOURCES,
    avro_bytes,
    backfill,
    delivered,
    history,
    json_bytes,
)
from tests.datastream_folder import minute_folder
from tests.datastream_model import ObjectModel
from tidegate.producer.datastream_source.limits import US_PER_MINUTE, SourceLimits

__all__ = ["World", "judge", "newest_rows", "run_world", "source_rows"]

_FIRST_MINUTE = 1_700_000_000_000_000 // US_PER_MINUTE


@dataclass
class World:
    """What a seed made."""

    source: str
    seed: int
    changes: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    events: list = field(default_factory=list)
    """As delivered: copies and rows of a backfill included."""
    late_files: int = 0
    model: ObjectModel | None = None
    deaths: int = 0


def run_world(seed, *, source=None, late_files=None, deaths=True, growing=False, **model):
    """Return the world of a seed after all of it was read and published.

    `growing`: many files are first there in part, cut anywhere, or are written a second time.
    """
    rng = random.Random(seed)
    world = World(source or rng.choice(SOURCES), seed)
    world.changes = history(world.source, rng, rng.randrange(20, 60))
    world.rows = backfill(world.source, rng, rng.choice((0, 0, 6)))
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
        some = world.events[at : at + rng.randrange(1, 6)]
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
    """Return the notes of the rows that the source has in the end, by key."""
    rows = {}
    for event in world.rows:
        rows[event["payload"]["id"]] = event["payload"]["note"]
    # A row of the backfill that no change concerns stays; the backfill is before every change.
    for event in world.changes:
        key = event["payload"]["id"]
        if event["source_metadata"]["is_deleted"]:
            rows.pop(key, None)
        else:
            rows[key] = event["payload"]["note"]
    return rows


def newest_rows(world):
    """Return the notes of the rows that have the highest order, by key; deletions left out."""
    newest = {}
    for message, _ in world.model.published:
        record = message.value
        (mod,) = record.mods
        order = record.server_transaction_id
        key = int(mod.keys["id"])
        if key not in newest or order > newest[key][0]:
            newest[key] = order, record.mod_type, mod
    return {
        key: mod.new_values["note"] for key, (_, kind, mod) in newest.items() if kind != "DELETE"
    }


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
    return found


def _row(message):
    (mod,) = message.value.mods
    return {**mod.keys, **mod.new_values, **mod.old_values}


def _out_of_order(world):
    """Compare the order of each key in the order of release with the source's."""
    place = {event["uuid"]: number for number, event in enumerate(world.changes, 1)}
    keys = defaultdict(list)
    for message, _ in sorted(world.model.published, key=lambda one: one[0].order_key):
        row = _row(message)
        at = place.get(row["_datastream_uuid"], 0)
        if at or not world.late_files:  # a row of a backfill in a late file is behind changes
            keys[row["id"]].append(at)
    return [f"key {key} released as {seen}" for key, seen in keys.items() if seen != sorted(seen)]

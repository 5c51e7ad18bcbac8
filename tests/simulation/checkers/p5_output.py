"""P5: the consumer's output is in commit order, whole transactions together, each change once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.history import Committed, History, Row, Violation
from tidegate.schemas.order_key import first_key_after


def commit_order(history: History) -> Iterator[Violation]:
    """The output is in commit order, over all releases, and releases follow without a hole.

    Within a release the ordinals are the places in that order, from 0.
    """
    last = b""
    for number, release in enumerate(history.released):
        if release.number != number:
            yield Violation(f"release {release.number} stands in place {number}")
        if number and release.after_us < history.released[number - 1].through_us:
            yield Violation(f"release {number} begins before the one before it ends")
        if release.ordinals not in {None, tuple(range(len(release.order_keys)))}:
            yield Violation(f"ordinals of release {number} are not its places: {release.ordinals}")
        low, high = first_key_after(release.after_us), first_key_after(release.through_us)
        for order_key in release.order_keys:
            if order_key <= last:
                yield Violation(f"release {number} holds it behind a later change", order_key)
            if not low <= order_key < high:
                yield Violation(f"outside the bounds of release {number}", order_key)
            last = max(last, order_key)


def whole_transactions(history: History) -> Iterator[Violation]:
    release_of = {key: release.number for release in history.released for key in release.order_keys}
    seen: dict[tuple[int, str], set[int]] = defaultdict(set)
    of_last: dict[tuple[int, str], bytes] = {}
    for change in history.watched:
        if change.order_key in release_of:
            transaction = change.commit_timestamp_us, change.transaction
            seen[transaction].add(release_of[change.order_key])
            of_last[transaction] = change.order_key
    for transaction, releases in seen.items():
        if len(releases) > 1:
            text = f"transaction {transaction[1]} is spread over releases {sorted(releases)}"
            yield Violation(text, of_last[transaction])


def one_plan(history: History) -> Iterator[Violation]:
    for batch, plans in Counter(claim.batch for claim in history.claims).items():
        if plans > 1:
            yield Violation(f"batch {batch} was planned {plans} times")


def manifests(history: History) -> Iterator[Violation]:
    """A manifest counts its release, and no table is behind what an earlier manifest names."""
    for before, one in pairwise(history.manifests):
        for table, version in before.versions.items():
            if one.versions.get(table, -1) < version:
                yield Violation(f"release {one.number}: {table} is behind version {version}")
    sizes = {release.number: len(release.order_keys) for release in history.released}
    for one in history.manifests:
        if one.rows != sizes.get(one.number, one.rows):
            yield Violation(f"manifest {one.number} counts {one.rows}, not {sizes[one.number]}")


def captured_values(history: History) -> Iterator[Violation]:
    for change in history.within:
        found = history.captured.get(change.order_key)
        if found is None or change.columns is None:
            continue
        if dict(found) != dict(change.columns):
            text = f"captured {dict(change.columns)}, the changelog holds {dict(found)}"
            yield Violation(text, change.order_key)


def mirrored_rows(history: History) -> Iterator[Violation]:
    """At each release the mirror is the source table as it was at that time."""
    released = {key for release in history.released for key in release.order_keys}
    in_time = [one for key, one in history.redriven.items() if key in released]
    changes = sorted([*history.watched, *in_time], key=lambda change: change.order_key)
    source: dict[tuple[str, bytes], Row] = {}
    known: set[tuple[str, bytes]] = set()
    done = 0
    skipped = {(c.topic, c.key) for c in changes if c.order_key in history.skipped}
    for mirror in sorted(history.mirrors, key=lambda one: one.through_us):
        while done < len(changes) and changes[done].commit_timestamp_us <= mirror.through_us:
            _apply(changes[done], source, known)
            done += 1
        held = {place: row for place, row in mirror.rows.items() if place in known}
        for place in (source.keys() | held.keys()) - skipped:
            if dict(source.get(place, {})) != dict(held.get(place, {})):
                text = (
                    f"as of {mirror.through_us} {place}: {held.get(place)}, not {source.get(place)}"
                )
                yield Violation(text)


def _apply(
    change: Committed, source: dict[tuple[str, bytes], Row], known: set[tuple[str, bytes]]
) -> None:
    """Rows that were there before the stream began are not the mirror's, until they are whole."""
    place = change.topic, change.key
    columns = change.columns or {}
    if change.mod == "I":
        source[place] = dict(columns)
        known.add(place)
    elif change.mod == "D":
        source.pop(place, None)
        known.add(place)
    elif place in source:
        source[place] = {**source[place], **columns}


def mirror_cadence(history: History) -> Iterator[Violation]:
    """Mirrors stand at an older release no longer than the settings say, and never go back."""
    merged_us: dict[int, int] = {}
    highest = -1
    for sight in sorted(history.mirror_sights, key=lambda one: one.batch):
        stands_at = -1 if sight.mirror is None else sight.mirror
        if not highest <= stands_at <= sight.newest:
            text = f"after batch {sight.batch} the mirror stands at {stands_at}, after {highest}"
            yield Violation(f"{text}; the newest release is {sight.newest}")
        highest = max(highest, stands_at)
        since_us = merged_us.setdefault(stands_at, sight.decided_us)
        is_late = sight.decided_us - since_us >= sight.every_us or sight.has_ended or stands_at < 0
        if stands_at < sight.newest and is_late:
            text = f"after batch {sight.batch} the mirror stands at {stands_at} of {sight.newest}"
            yield Violation(f"{text} since {sight.decided_us - since_us} µs")

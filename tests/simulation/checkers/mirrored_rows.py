"""P5: at each release the mirror is the source table as it was at that time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Committed, History, Row, Violation


def check(history: History) -> Iterator[Violation]:
    """Apply the source's changes in commit order beside the mirror, release by release."""
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

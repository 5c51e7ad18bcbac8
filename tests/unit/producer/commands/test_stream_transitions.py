"""The table of a stream's states is what the records of workers and commands lead to, step by step.

The records are those of the protocol, folded as `status` folds them, one at a time, in every order
in which workers and operators can write them.  Every step is in the table, and no other is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lineage.fleet_status import fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.commands.command_rules import Command, require_permitted
from tidegate.producer.commands.stream_state import StreamState, stream_state
from tidegate.producer.commands.stream_transitions import (
    STREAM_TRANSITIONS,
    StreamChange,
    drawing,
)
from tidegate.producer.errors import CommandRefused
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotPaused,
    SlotProgress,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

REASONS = {
    "open": None,
    "error": "SchemaError: damaged",
    "expired": "PositionExpired: too old (lost_from='x', lost_until='y')",
}
END_NS = 9_000


def tokens_of(slots, owned):
    """Return a token for each of the owned slots, None for the others."""
    names = [f"t{number}" for number in range(50)]
    return tuple(
        next(name for name in names if slot_of(name, slots) == slot) if slot in owned else None
        for slot in range(slots)
    )


@dataclass(frozen=True)
class Written:
    """What the topic and the group say; a new stream with an end, whose tokens have no children."""

    tokens: tuple[str | None, ...]
    is_opened: bool = False
    said: tuple[str | None, ...] = ()
    """What the newest heartbeat of each slot says of its token; None without a heartbeat."""
    obeys: tuple[bool, ...] = ()
    """Whether a slot's owner obeys the pause that holds."""
    control: ControlState | None = None
    has_workers: bool = False


class World:
    """A stream's records so far, and what they come to."""

    def __init__(self, written, records=()):
        self.written = written
        self.records = records
        self.slots = len(written.tokens)
        self.members = ["w"] if written.has_workers else []
        self.status = self._status()
        self.state = stream_state(self.status, self.members)

    def _status(self):
        if not self.written.is_opened:
            return None
        view = FleetView(epoch="e", progress_topic="p", slots=self.slots)
        ends = dict.fromkeys(range(self.slots), 0)
        for slot, body in self.records:
            row = ProgressRow(slot, ends[slot], ProgressRecord("e", "w", body))
            ends[slot] += 1
            view.fold([row], reached=dict(ends))
        return fleet_status(view, self.records[0][1], epoch="e")

    def _after(self, *records, **changes):
        return World(replace(self.written, **changes), (*self.records, *records))

    def steps(self):
        """Yield what can happen next, and the world after it; each is one record, or one member.

        A record may become readable after its worker has left: the open transaction of another
        one has hidden it until then.  So workers need not be there for what they have written.
        """
        now = self.written
        yield (
            StreamChange.LEFT if now.has_workers else StreamChange.JOINED,
            self._after(has_workers=not now.has_workers),
        )
        if not now.is_opened:
            yield StreamChange.OPENED, self._opened()
            return
        for slot in range(self.slots):
            yield from self._beats(slot)
            if now.control is ControlState.PAUSED and now.said[slot] and not now.obeys[slot]:
                obeys = (*now.obeys[:slot], True, *now.obeys[slot + 1 :])
                record = (slot, SlotPaused(slot, self.status.control.number))
                yield StreamChange.OBEYED, self._after(record, obeys=obeys)
        yield from self._commands()

    def _opened(self):
        children = tuple(
            ChildPartition(token, (ROOT_TOKEN,), 0) for token in self.written.tokens if token
        )
        body = StreamStarted("s", "d", 0, END_NS, "g", self.slots, "id", (), children)
        announced = (
            (slot_of(one.token, self.slots), PartitionAnnounced(one, ROOT_TOKEN))
            for one in children
        )
        nothing = (None,) * self.slots
        return self._after(
            (0, body), *announced,
            is_opened=True, said=nothing, obeys=(False,) * self.slots,
        )  # fmt: skip

    def _beats(self, slot):
        """Yield what the next heartbeat of a slot may say."""
        token, before = self.written.tokens[slot], self.written.said[slot]
        if token is None:
            if before is None:
                yield StreamChange.HEARD, self._beat(slot, "none")
            return
        if before == "finished":
            return
        # A new owner tries again what was stopped, and may have an answer before its first
        # heartbeat.  One that obeys a pause reads nothing.
        may_read = not self.written.obeys[slot]
        for after in ("open", "error", "expired", "finished"):
            if after == before or not (may_read or after == "open"):
                continue
            yield self._change(slot, before, after), self._beat(slot, after)

    def _change(self, slot, before, after):
        if after in ("error", "expired"):
            return StreamChange.STOPPED if after == "error" else StreamChange.EXPIRED
        if before in ("error", "expired"):
            return StreamChange.CLEARED
        others = (
            self.written.said[other]
            for other, token in enumerate(self.written.tokens)
            if token is not None and other != slot
        )
        is_last = after == "finished" and all(one == "finished" for one in others)
        return StreamChange.ENDED if is_last else StreamChange.HEARD

    def _beat(self, slot, says):
        token = self.written.tokens[slot]
        done = [one for number, one in self.records if number == slot]
        records, tokens = [], ()
        if says == "finished":
            records.append((slot, PartitionFinished(token, (ROOT_TOKEN,), 0, END_NS, (), ())))
        elif says != "none":
            tokens = (
                TokenSnapshot(
                    token, 0, (ROOT_TOKEN,), (ROOT_TOKEN,), 5, number=1, stopped=REASONS[says]
                ),
            )
        revision = 1 + sum(isinstance(one, SlotProgress) for one in done)
        body = SlotProgress(slot, revision, 0, len(done) - 1, (), tokens)
        said = (*self.written.said[:slot], says, *self.written.said[slot + 1 :])
        return self._after(*records, (slot, body), said=said)

    def _commands(self):
        for command, change, state in (
            (Command.PAUSE, StreamChange.PAUSE, ControlState.PAUSED),
            (Command.RESUME, StreamChange.RESUME, ControlState.RUNNING),
        ):
            if self._permits(command) and self.written.control is not state:
                before = self.status.control
                number = 1 + (0 if before is None else before.number)
                record = (0, StreamControl(number, state, "me", 0))
                yield change, self._after(record, control=state, obeys=(False,) * self.slots)
        if not self.written.has_workers and self._permits(Command.RESET):
            yield StreamChange.RESET, World(Written(self.written.tokens))

    def _permits(self, command):
        try:
            require_permitted(command, self.status, self.members)
        except CommandRefused:
            return False
        return True


@pytest.fixture(scope="module")
def derived():
    """Every step that changes the state, of streams with two slots, one of them without tokens."""
    found = {}
    for owned in ((0, 1), (0,)):
        first = World(Written(tokens_of(2, owned)))
        states, left = {first.written: first.state}, [first]
        while left:
            world = left.pop()
            for change, after in world.steps():
                if after.state is not world.state:
                    found.setdefault((world.state, change), set()).add(after.state)
                if after.written not in states:
                    left.append(after)
                # The state follows from what holds now, whatever led there.
                assert states.setdefault(after.written, after.state) is after.state
    return found


@pytest.mark.rule("datastream-refused-commands")
@pytest.mark.parametrize("change", StreamChange, ids=lambda one: one.name)
@pytest.mark.parametrize("state", StreamState, ids=lambda one: one.name)
def test_each_change_in_each_state_leads_where_the_table_says(derived, state, change):
    expected = derived.get((state, change), set())
    assert set(STREAM_TRANSITIONS.get((state, change), ())) == expected


@given(st.randoms(use_true_random=False), st.sets(st.integers(0, 2), min_size=1))
@settings(max_examples=40, deadline=None)
def test_no_run_of_a_larger_stream_makes_another_step(random, owned):
    world = World(Written(tokens_of(3, owned)))
    for _ in range(25):
        change, after = random.choice(list(world.steps()))
        if after.state is not world.state:
            assert after.state in STREAM_TRANSITIONS.get((world.state, change), ())
        world = after


def test_each_state_is_met_and_only_a_reset_leads_out_of_the_end():
    reached = {StreamState.NOT_STARTED}
    for _ in StreamState:
        for (state, _), following in STREAM_TRANSITIONS.items():
            if state in reached:
                reached |= following
    assert reached == set(StreamState)
    assert [change for state, change in STREAM_TRANSITIONS if state is StreamState.ENDED] == [
        StreamChange.RESET
    ]


@pytest.mark.rule("datastream-refused-commands")
def test_the_drawing_has_an_arrow_for_each_pair_of_states():
    pairs = {
        (state.name.lower(), one.name.lower())
        for (state, _), following in STREAM_TRANSITIONS.items()
        for one in following
    }
    arrows = [line.strip().split(":")[0] for line in drawing().splitlines() if "-->" in line]
    assert {tuple(arrow.split(" --> ")) for arrow in arrows if "[*]" not in arrow} == pairs
    assert len(arrows) == len(pairs) + 2

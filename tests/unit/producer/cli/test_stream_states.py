"""A stream's states, since when it is in one, what leads from one to another, what each permits.

The records in the second half are those of the protocol, folded as `status` folds them, one at a
time, in every order in which workers and operators can write them.  Every step is in the table of
transitions, and no other is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.producer.cli.conftest import beat, started
from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
    fleet_status,
)
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.lineage_graph import PartitionHistory
from tidegate.producer.cli import fleet_reader
from tidegate.producer.cli.accept_gap import accept_gap
from tidegate.producer.cli.fleet_reader import FleetRecords
from tidegate.producer.cli.redrive import redrive
from tidegate.producer.cli.stream_states import (
    COMMAND_RULES,
    STREAM_TRANSITIONS,
    Command,
    StreamChange,
    StreamState,
    drawing,
    require_command,
    require_permitted,
    state_since,
    stream_state,
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

DAMAGED = "SchemaError: damaged"
EXPIRED = "PositionExpired: too old (lost_from='x', lost_until='y')"
PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING
State = StreamState
WORKER = ["w"]


def stream(*reasons, control=None, obeys=(), watermark_us=5, has_ended=False):
    """A stream with a stream partition for each reason to stop, and a slot for each that obeys."""
    return FleetStatus(
        "s", "e", watermark_us, has_ended,
        tuple(SlotStatus(n, "w", 4, 1, 5, is_paused=obey) for n, obey in enumerate(obeys)),
        tuple(
            PartitionStatus(f"t{n}", 0, "w", PartitionCondition.OPEN, 5, reason)
            for n, reason in enumerate(reasons)
        ),
        control=None if control is None else StreamControl(1, control, "me", 0),
    )  # fmt: skip


def timed(*slots, partitions=(), control=None):
    """A stream whose slots have these times: heard, steady since, empty since."""
    return FleetStatus(
        "s", "e", 5, False,
        tuple(SlotStatus(n, "w", 4, 1, 5, False, *times) for n, times in enumerate(slots)),
        tuple(
            PartitionStatus("t", 0, "w", PartitionCondition.STOPPED, 5, reason, since_us)
            for reason, since_us in partitions
        ),
        control=None if control is None else StreamControl(1, control[0], "me", control[1]),
    )  # fmt: skip


@pytest.mark.rule("datastream-states")
@pytest.mark.parametrize(
    ("found", "members", "state"),
    [
        (stream(None), WORKER, State.RUNNING),
        (stream(None, watermark_us=None), WORKER, State.STARTING),
        (stream(None), [], State.PAUSED),
        (stream(None, "damaged"), WORKER, State.FAILED),
        (stream(None, "damaged"), [], State.FAILED),
        (stream("damaged", EXPIRED), WORKER, State.FAILED_PERMANENTLY),
        (stream(has_ended=True), [], State.ENDED),
        (None, [], State.NOT_STARTED),
        (stream(None, control=PAUSED, obeys=(True, False)), WORKER, State.DRAINING),
        (stream(None, control=PAUSED, obeys=(True, True)), WORKER, State.PAUSED),
        (stream(None, control=PAUSED, obeys=(True, False)), [], State.PAUSED),
        (stream(None, control=RUNNING, obeys=(False,)), WORKER, State.RUNNING),
        (stream(None, control=PAUSED, obeys=(True,), watermark_us=None), WORKER, State.PAUSED),
    ],
)
def test_it_is_the_first_that_holds(found, members, state):
    assert stream_state(found, members) is state


@pytest.mark.rule("datastream-states")
def test_names_are_those_of_datastream():
    assert {state.value for state in StreamState} - {"Ended"} == {
        "Not started", "Starting", "Running", "Draining", "Paused", "Failed", "Failed permanently",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "found", "since_us"),
    [
        (State.RUNNING, timed((90, 30, None), (90, 40, None)), 40),
        (State.RUNNING, timed((90, 30, None), control=(RUNNING, 70)), 70),
        (State.RUNNING, timed((90, 80, None), control=(RUNNING, 70)), 80),
        (State.RUNNING, timed((90, 30, None), (90, None, None)), None),
        (State.STARTING, timed((90, 30, None), (90, 20, None), (None, None, None)), 20),
        (State.STARTING, timed((90, 30, None), control=(RUNNING, 70)), 70),
        (State.STARTING, timed((None, None, None)), None),
        (State.DRAINING, timed((90, 30, None), control=(PAUSED, 70)), 70),
        (State.PAUSED, timed((90, 30, None), control=(PAUSED, 70)), 70),
        (State.PAUSED, timed((60, 30, None), (90, 30, None)), 90),
        (State.PAUSED, timed((60, 30, None), control=(RUNNING, 10)), 60),
        (State.PAUSED, timed((None, None, None)), None),
        (State.ENDED, timed((90, 30, 50), (90, 30, 60)), 60),
        (State.NOT_STARTED, timed(), None),
    ],
)
def test_a_state_holds_since_the_latest_of_what_it_needs(state, found, since_us):
    assert state_since(found, state) == since_us


def test_a_failure_counts_from_the_first_error_of_its_kind():
    partitions = (("damaged", 20), (EXPIRED, 50), (EXPIRED, 40), (EXPIRED, None), (None, None))
    failed = timed((90, None, None), partitions=partitions)
    assert state_since(failed, State.FAILED) == 20
    assert state_since(failed, State.FAILED_PERMANENTLY) == 40
    assert state_since(timed(partitions=(("damaged", None),)), State.FAILED) is None


PAUSE = {"control": PAUSED, "obeys": (False,)}
STREAMS = {
    State.NOT_STARTED: (None, []),
    State.STARTING: (stream(None, watermark_us=None), WORKER),
    State.RUNNING: (stream(None), WORKER),
    State.DRAINING: (stream(None, **PAUSE), WORKER),
    State.PAUSED: (stream(None, control=PAUSED, obeys=(True,)), WORKER),
    State.FAILED: (stream(DAMAGED, **PAUSE), WORKER),
    State.FAILED_PERMANENTLY: (stream(EXPIRED, **PAUSE), WORKER),
    State.ENDED: (stream(has_ended=True), []),
}
"""A stream in each state; an operator's pause holds wherever it can."""
GOES_ON = set(State) - {State.NOT_STARTED, State.ENDED, State.FAILED_PERMANENTLY}
PERMITTED = {
    "pause": GOES_ON,
    "resume": {State.DRAINING, State.PAUSED, State.FAILED},
    "drain": set(State) - {State.NOT_STARTED},
    "backfill": {State.STARTING, State.RUNNING},
    "backfill --stop": GOES_ON,
    "backfill --resume": GOES_ON,
    "backfill --cancel": GOES_ON | {State.FAILED_PERMANENTLY},
    "redrive": GOES_ON | {State.ENDED},
    "accept-gap": {State.FAILED_PERMANENTLY},
    "reset": set(State),
}


@pytest.mark.rule("datastream-refused-commands")
@pytest.mark.parametrize("state", StreamState, ids=lambda one: one.name)
@pytest.mark.parametrize("command", Command, ids=lambda one: one.name)
def test_a_command_is_permitted_in_these_states_and_refused_in_all_others(command, state):
    assert set(COMMAND_RULES) == set(Command)
    stream_seen, members = STREAMS[state]
    if state in PERMITTED[command.value]:
        assert require_permitted(command, stream_seen, members) is state
        return
    text = f"`{command.value}` is refused: the stream is {state.value}"
    with pytest.raises(CommandRefused, match=text) as refused:
        require_permitted(command, stream_seen, members)
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_only_what_an_operator_has_paused_is_resumed():
    for stream_seen, members, hint in (
        (stream(None), WORKER, "No operator has paused it"),
        (stream(None, control=RUNNING), WORKER, "No operator has paused it"),
        (stream(None), [], "no worker is in its group: start workers"),
        (stream("damaged"), WORKER, "No operator has paused it"),
        (stream(EXPIRED), WORKER, "accept-gap"),
    ):
        with pytest.raises(CommandRefused, match=hint):
            require_permitted(Command.RESUME, stream_seen, members)
    # Also where no worker is there to obey.
    assert require_permitted(Command.RESUME, stream(None, **PAUSE), []) is State.PAUSED


def test_a_failed_stream_takes_up_a_backfill_while_it_is_read():
    assert require_permitted(Command.BACKFILL, stream(DAMAGED), WORKER) is State.FAILED
    with pytest.raises(CommandRefused, match="start workers"):
        require_permitted(Command.BACKFILL, stream(DAMAGED), [])
    with pytest.raises(CommandRefused, match="Resume it"):
        require_permitted(Command.BACKFILL, stream(DAMAGED, **PAUSE), WORKER)


def test_what_was_read_of_a_topic_is_enough_to_know_the_state():
    view = FleetView(epoch="e", progress_topic="p", slots=1)
    body = SimpleNamespace(stream="s", end_ns=None)
    records = FleetRecords(view, body, 4, "e", PartitionHistory(epoch="e"))
    assert require_command(Command.PAUSE, records, WORKER) is State.STARTING
    with pytest.raises(CommandRefused, match="the stream is Starting"):
        require_command(Command.RESUME, records, WORKER)


@pytest.mark.parametrize(
    ("command", "reason", "text"),
    [
        (redrive, EXPIRED, "`redrive` is refused: the stream is Failed perm"),
        (accept_gap, DAMAGED, "`accept-gap` is refused: the stream is Failed.*has expired unread"),
    ],
)
def test_a_command_reads_the_state_first(place, monkeypatch, command, reason, text):
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: [])
    config = place.config()
    place.record(started(config.stream_path))
    for slot in range(4):
        place.record(beat(slot, stopped=reason if slot == 2 else None), slot=slot)
    options = {"confirm": lambda _report: True} if command is accept_gap else {}
    with pytest.raises(CommandRefused, match=text):
        command(config, dry_run=True, **options)


REASONS = {"open": None, "error": DAMAGED, "expired": EXPIRED}
END_NS = 9_000


def tokens_of(slots, owned):
    """Return a token for each of the owned slots, None for the others."""
    names = [f"t{number}" for number in range(50)]
    return tuple(
        next(name for name in names if slot_of(name, slots) == slot) if slot in owned else None
        for slot in range(slots)
    )


def put(values, place, value):
    return (*values[:place], value, *values[place + 1 :])


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
        self.members = WORKER if written.has_workers else []
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
            if now.control is PAUSED and now.said[slot] and not now.obeys[slot]:
                record = (slot, SlotPaused(slot, self.status.control.number))
                yield (
                    StreamChange.OBEYED,
                    self._after(record, obeys=put(now.obeys, slot, value=True)),
                )
        yield from self._commands()

    def _opened(self):
        children = tuple(
            ChildPartition(token, (ROOT_TOKEN,), 0) for token in self.written.tokens if token
        )
        body = StreamStarted("s", "d", 0, END_NS, "g", self.slots, "id", (), children)
        announced = (
            (slot_of(child.token, self.slots), PartitionAnnounced(child, ROOT_TOKEN))
            for child in children
        )
        nothing, obeys = (None,) * self.slots, (False,) * self.slots
        return self._after((0, body), *announced, is_opened=True, said=nothing, obeys=obeys)

    def _beats(self, slot):
        """Yield what the next heartbeat of a slot may say."""
        before = self.written.said[slot]
        if self.written.tokens[slot] is None:
            if before is None:
                yield StreamChange.HEARD, self._beat(slot, "none")
            return
        if before == "finished":
            return
        # A new owner tries again what was stopped, and may have an answer before its first
        # heartbeat.  One that obeys a pause reads nothing.
        may_read = not self.written.obeys[slot]
        for after in ("open", "error", "expired", "finished"):
            if after != before and (may_read or after == "open"):
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
        is_last = after == "finished" and all(state == "finished" for state in others)
        return StreamChange.ENDED if is_last else StreamChange.HEARD

    def _beat(self, slot, says):
        token, root = self.written.tokens[slot], (ROOT_TOKEN,)
        done = [body for number, body in self.records if number == slot]
        records, tokens = [], ()
        if says == "finished":
            records.append((slot, PartitionFinished(token, root, 0, END_NS, (), ())))
        elif says != "none":
            tokens = (TokenSnapshot(token, 0, root, root, 5, number=1, stopped=REASONS[says]),)
        revision = 1 + sum(isinstance(body, SlotProgress) for body in done)
        body = SlotProgress(slot, revision, 0, len(done) - 1, (), tokens)
        return self._after(*records, (slot, body), said=put(self.written.said, slot, says))

    def _commands(self):
        for command, change, state in (
            (Command.PAUSE, StreamChange.PAUSE, PAUSED),
            (Command.RESUME, StreamChange.RESUME, RUNNING),
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


@pytest.mark.rule("datastream-refused-commands")
def test_each_change_in_each_state_leads_where_the_table_says():
    """All steps of streams with two slots, one of which may have no tokens."""
    derived = {}
    for owned in ((0, 1), (0,)):
        first = World(Written(tokens_of(2, owned)))
        states, left = {first.written: first.state}, [first]
        while left:
            world = left.pop()
            for change, after in world.steps():
                if after.state is not world.state:
                    derived.setdefault((world.state, change), set()).add(after.state)
                if after.written not in states:
                    left.append(after)
                # The state follows from what holds now, whatever led there.
                assert states.setdefault(after.written, after.state) is after.state
    assert {step: set(following) for step, following in STREAM_TRANSITIONS.items()} == derived


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
    reached = {State.NOT_STARTED}
    for _ in StreamState:
        for (state, _), following in STREAM_TRANSITIONS.items():
            if state in reached:
                reached |= following
    assert reached == set(StreamState)
    leads_out = [change for state, change in STREAM_TRANSITIONS if state is State.ENDED]
    assert leads_out == [StreamChange.RESET]


@pytest.mark.rule("datastream-refused-commands")
def test_the_drawing_has_an_arrow_for_each_pair_of_states():
    pairs = {
        (state.name.lower(), next_state.name.lower())
        for (state, _), following in STREAM_TRANSITIONS.items()
        for next_state in following
    }
    arrows = [line.strip().split(":")[0] for line in drawing().splitlines() if "-->" in line]
    assert {tuple(arrow.split(" --> ")) for arrow in arrows if "[*]" not in arrow} == pairs
    assert len(arrows) == len(pairs) + 2

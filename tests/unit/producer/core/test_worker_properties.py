"""Whatever happens to workers, and in whatever order, the log they leave stays right.

The log takes one worker's effects at a time; interleavings between processes are the simulation's.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.producer.core.conftest import SLOTS, START_US, Bench, Log
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.errors import QueryInterrupted
from tidegate.schemas.progress import PartitionFinished, SlotProgress
from tidegate.schemas.topics import ROOT_TOKEN

EVERY_SLOT = tuple(range(SLOTS))


class Fleet(RuleBasedStateMachine):
    """One worker after another on one log; a source that knows what it has committed."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.clock_us = START_US
        self.committed: dict[str, list[int]] = {}
        self.children: dict[str, tuple[str, ...]] = {}
        self.served: dict[int, int] = {}
        self.workers = 0
        self.begin()

    def begin(self) -> None:
        """A new process takes everything over."""
        self.workers += 1
        self.bench = Bench(self.log, name=f"w{self.workers}")
        self.bench.now_us = self.clock_us
        self.bench.own(*EVERY_SLOT)
        if ROOT_TOKEN in self.bench.queries:
            self.bench.returns(ROOT_TOKEN, self.bench.children("a", "b", start_us=START_US))
            self.bench.ends(ROOT_TOKEN)
            self.committed |= {"a": [], "b": []}
        self.go_on()

    def go_on(self) -> None:
        self.clock_us += 1_000_000
        self.bench.now_us = self.clock_us
        self.bench.later()
        self.bench.later()

    # -- the source

    @property
    def reading(self) -> list[str]:
        return sorted(t for t in self.bench.queries if t and t in self.committed)

    def position(self, query: do.StartQuery) -> int:
        """Return the place of the next change that a query has to return."""
        times = self.committed[query.token]
        first = next((n for n, us in enumerate(times) if us * 1_000 >= query.start_ns), len(times))
        return self.served.get((self.workers, query.query_id), first)

    @rule(data=st.data(), same_instant=st.booleans())
    def a_change_is_committed(self, data, same_instant):
        token = data.draw(st.sampled_from(sorted(self.committed)))
        if token not in self.children:
            self.clock_us += 0 if same_instant else 10
            self.committed[token].append(self.clock_us)

    @precondition(lambda self: self.reading)
    @rule(data=st.data())
    def a_query_returns_what_there_is(self, data):
        token = data.draw(st.sampled_from(self.reading))
        query = self.bench.queries[token]
        times = self.committed[token]
        done = self.position(query)
        until = data.draw(st.integers(done, len(times)))
        records = [self.bench.change(times[n], f"{token}-{n}") for n in range(done, until)]
        self.served[self.workers, query.query_id] = until
        if records:
            self.bench.returns(token, *records)

    @precondition(lambda self: self.reading)
    @rule(data=st.data())
    def a_query_breaks(self, data):
        token = data.draw(st.sampled_from(self.reading))
        query = self.bench.queries.pop(token)
        error = QueryInterrupted("away", code="UNAVAILABLE")
        self.bench.give(on.QueryFailed(token, query.query_id, error))

    @precondition(lambda self: self.reading)
    @rule(data=st.data(), truncated=st.booleans())
    def a_query_ends(self, data, truncated):
        token = data.draw(st.sampled_from(self.reading))
        query = self.bench.queries[token]
        times = self.committed[token]
        if truncated:
            self.bench.ends(token)
            return
        if self.position(query) < len(times):
            return
        self.clock_us += 10
        self.children.setdefault(token, (f"{token}1",))
        self.finish(token)

    def finish(self, token: str) -> None:
        """End the query of a stream partition that has ended: the same children, however often."""
        names = self.children[token]
        start_us = max([START_US, *self.committed[token]]) + 5
        self.committed.setdefault(names[0], [])
        kids = self.bench.children(*names, start_us=start_us, parents=(token,))
        self.clock_us = max(self.clock_us, start_us + 10)
        self.bench.returns(token, kids)
        self.bench.ends(token)

    # -- the worker

    @rule()
    def time_passes(self):
        self.go_on()

    @rule(in_silence=st.booleans())
    def an_outcome_stays_unknown(self, in_silence):
        self.bench.outcome = on.CommitOutcomeUnknown("silence")
        self.bench.commits_in_silence = in_silence
        self.go_on()
        self.bench.outcome, self.bench.commits_in_silence = None, False
        self.bench.read()

    @rule()
    def a_transaction_is_aborted(self):
        self.bench.outcome = on.TransactionAborted("refused")
        self.go_on()
        self.bench.outcome = None

    @rule(slots=st.sets(st.sampled_from(EVERY_SLOT), min_size=1), graceful=st.booleans())
    def slots_go_and_come_back(self, slots, graceful):
        chosen = tuple(sorted(slots))
        self.bench.give(on.SlotsRevoked(chosen) if graceful else on.SlotsLost(chosen))
        self.go_on()
        if graceful and set(chosen) & self.bench.worker.slots.keys():
            self.go_on()
        self.bench.own(*(slot for slot in chosen if slot not in self.bench.worker.slots))

    @rule()
    def it_dies(self):
        self.begin()

    # -- what must hold

    @invariant()
    def the_log_is_right(self):
        order_keys = [message.order_key for message in self.log.data]
        assert len(order_keys) == len(set(order_keys))
        by_token: dict[bytes, list[bytes]] = {}
        for order_key in order_keys:
            token = order_key[8:].split(b"-")[0]
            by_token.setdefault(token, []).append(order_key[:8])
        assert all(times == sorted(times) for times in by_token.values())

    @invariant()
    def snapshots_follow_each_other(self):
        for records in self.log.slots.values():
            revisions = [
                record.body.revision
                for record in records
                if record is not None and isinstance(record.body, SlotProgress)
            ]
            assert revisions == list(range(1, len(revisions) + 1))

    def teardown(self):
        """Everything that was committed comes, without anybody's help."""
        for _ in range(60):
            for token in self.reading:
                query = self.bench.queries[token]
                times = self.committed[token]
                first = next(
                    (n for n, us in enumerate(times) if us * 1_000 >= query.start_ns), len(times)
                )
                done = self.served.get((self.workers, query.query_id), first)
                self.served[self.workers, query.query_id] = len(times)
                rest = [
                    self.bench.change(times[n], f"{token}-{n}") for n in range(done, len(times))
                ]
                if rest:
                    self.bench.returns(token, *rest)
                if token in self.children:
                    self.finish(token)
            self.clock_us += 40_000_000
            self.go_on()
        came = {message.order_key[8:].split(b"\0")[0].decode() for message in self.log.data}
        made = {f"{t}-{n}" for t, times in self.committed.items() for n in range(len(times))}
        assert came == made
        finished = [
            record.body.token
            for records in self.log.slots.values()
            for record in records
            if record is not None and isinstance(record.body, PartitionFinished)
        ]
        assert len(finished) == len(set(finished))


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

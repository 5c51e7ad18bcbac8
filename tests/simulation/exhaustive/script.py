"""A scenario written out: what Spanner holds, who works, what may befall them.

All changes are there from the beginning; that a worker has not read one yet is the same to it as
one that was not committed yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Committed, LineageFact
from tests.simulation.tables import KEY
from tests.topics import Change, Topic
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

BEGIN_US = 1_700_000_040_000_000
"""A whole minute, so that the commit interval does not make a snapshot fall due."""
SLOTS = 2
NAMES = TopicNames("sim")
TABLE = Topic("t0", {2: dict.fromkeys((KEY, "a", "b"), "INT64")}, [KEY], 1, prefix=NAMES.prefix)
TOPIC = TABLE.topic
_MODS = {"I": "INSERT", "U": "UPDATE"}
_Item = PublishableRecord | HeartbeatRecord | ChildPartitionsRecord
Answer = tuple[_Item, ...]  # one response of a query


def token_in(name: str, slot: int) -> str:
    """Return a token that begins with a name and belongs to a slot."""
    return next(
        token
        for token in (name, *(f"{name}{number}" for number in range(64)))
        if slot_of(token, SLOTS) == slot
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A stream partition of a script; times in microseconds since the stream's start."""

    token: str
    start: int
    changes: tuple[tuple[int, str, int], ...]  # (commit time, transaction, key)
    heartbeats: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()
    end: int | None = None
    children: tuple[str, ...] = ()
    apart: bool = False  # a heartbeat is a response of its own, not one with the change before it


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is written, and what may happen to whom."""

    name: str
    parts: tuple[Part, ...]
    crashes: tuple[str, ...] = ()
    """Workers one of whom dies, once, at any moment: the other gets its slots, or it comes back."""
    expulsions: tuple[str, ...] = ()
    """Workers one of whom the group removes, once, at any moment, and who work on unaware."""
    unknown: tuple[str, ...] = ()
    """Workers one of whose commits, once, gets no answer, whether it takes place or not."""
    topic_partitions: int = 2
    apart: bool = False  # each marker of a decided transaction is an action of its own
    reads_within: bool = False
    """A worker goes on reading while its transaction is open, not only before the next."""
    thirds: bool = False  # the fence and the commit are an action of their own, after the snapshots
    opening: bool = False  # begin before the stream is opened, not after
    returns: bool = False  # one that died and lost its slots comes back as a new member
    consumer_crashes: bool = False
    """The consumer dies once in any batch, between any two of its effects."""
    batches: int = 2  # micro-batches at any moments, before a last one at the end

    def part(self, token: str) -> Part:
        return next(part for part in self.parts if part.token == token)


@dataclass(frozen=True, slots=True)
class Script:
    """The scenario as Spanner answers it; nothing of it ever changes."""

    scenario: Scenario
    records: dict[str, tuple[PublishableRecord, ...]]
    committed: tuple[Committed, ...]
    lineage: dict[str, LineageFact]

    @classmethod
    def of(cls, scenario: Scenario) -> Script:
        """Write a scenario's changes out; the first of a key inserts, the others update."""
        records: dict[str, tuple[PublishableRecord, ...]] = {}
        committed: list[Committed] = []
        existing: set[int] = set()
        changes = sorted(
            (at, name, part.token, key) for part in scenario.parts for at, name, key in part.changes
        )
        for number, (at, name, token, key) in enumerate(changes):
            mod, columns = ("U", {"a": at}) if key in existing else ("I", {"a": at, "b": at})
            existing.add(key)
            at_us, sequence = BEGIN_US + at, f"{number:08d}"
            order_key = OrderKey(at_us, name, sequence_pair(sequence), 0).encode()
            framed = TABLE.framed(Change(_MODS[mod], {KEY: key}, columns))
            message = ChangeMessage(TOPIC, *framed, order_key, mod.encode(), origin_of(token))
            record = PublishableRecord(at_us, name, sequence, (message,))
            records[token] = (*records.get(token, ()), record)
            committed.append(
                Committed(
                    order_key, at_us, name, TOPIC, b"%d" % key,
                    token=token, mod=mod, columns=columns,
                )
            )  # fmt: skip
        lineage = {
            part.token: LineageFact(
                part.token, part.parents, BEGIN_US + part.start,
                None if part.end is None else BEGIN_US + part.end, part.children,
            )
            for part in scenario.parts
        }  # fmt: skip
        return cls(scenario, records, tuple(committed), lineage)

    def answers(self, token: str, start_us: int) -> tuple[Answer, ...]:
        """Return what a query gets, one response after the other."""
        if token == ROOT_TOKEN:
            roots = tuple(
                ChildPartition(part.token, (), BEGIN_US * 1000)
                for part in self.scenario.parts
                if not part.parents
            )
            return ((ChildPartitionsRecord(BEGIN_US * 1000, "00000000", roots),),)
        part = self.scenario.part(token)
        beats = [HeartbeatRecord((BEGIN_US + at) * 1000) for at in part.heartbeats]
        items: list[_Item] = [*self.records.get(token, ()), *beats]
        answers: list[Answer] = []
        for item in sorted((one for one in items if _time_of(one) >= start_us), key=_time_of):
            if answers and isinstance(item, HeartbeatRecord) and not part.apart:
                answers[-1] = (*answers[-1], item)
            else:
                answers.append((item,))
        if part.end is not None:
            start_ns = (BEGIN_US + part.end) * 1000
            children = tuple(
                ChildPartition(child, self.scenario.part(child).parents, start_ns)
                for child in part.children
            )
            answers.append((ChildPartitionsRecord(start_ns, "00000000", children),))
        return tuple(answers)

    @property
    def horizon_us(self) -> int:
        """The watermark at the end: just before the last heartbeat of the slowest."""
        return (
            BEGIN_US
            - 1
            + min(max(part.heartbeats) for part in self.scenario.parts if part.end is None)
        )


def _time_of(item: _Item) -> int:
    if isinstance(item, PublishableRecord):
        return item.commit_timestamp_us
    return (item.timestamp_ns if isinstance(item, HeartbeatRecord) else item.start_ns) // 1000


def _split(*, slots: tuple[int, int, int] = (0, 1, 0), apart: bool = False) -> tuple[Part, ...]:
    """One change before a split; after it a transaction over both children."""
    p, c, d = (token_in(name, slot) for name, slot in zip("pcd", slots, strict=True))
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c, d)),
        Part(c, 20, ((30, "t2", 0),), (40,), parents=(p,), apart=apart),
        Part(d, 20, ((30, "t2", 4),), (40,), parents=(p,), apart=apart),
    )


def _merge(*, slot: int = 0, apart: bool = False) -> tuple[Part, ...]:
    """Two parents with different owners; a transaction over both before the merge."""
    p, q, c = token_in("p", 0), token_in("q", 1), token_in("c", slot)
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c,)),
        Part(q, 0, ((10, "t1", 4),), end=20, children=(c,)),
        Part(c, 20, ((30, "t2", 0),), (40,), parents=(p, q), apart=apart),
    )


def _split_and_merge() -> tuple[Part, ...]:
    """A split whose children, at different owners, merge again."""
    p, c, d, m = token_in("p", 0), token_in("c", 0), token_in("d", 1), token_in("m", 1)
    return (
        Part(p, 0, ((10, "t1", 0),), end=20, children=(c, d)),
        Part(c, 20, ((30, "t2", 0),), parents=(p,), end=50, children=(m,)),
        Part(d, 20, ((30, "t2", 4),), parents=(p,), end=50, children=(m,)),
        Part(m, 50, ((60, "t3", 0),), (70,), parents=(c, d)),
    )


_ANY = ("A", "B")

# Together less than a minute of one core.
SCENARIOS = (
    Scenario("split, crash", _split(), crashes=_ANY),
    Scenario("split, commit unanswered", _split(), unknown=_ANY),
    Scenario("split, consumer crash", _split(), consumer_crashes=True),
    Scenario("split, markers apart", _split(), apart=True),
    Scenario("split and merge", _split_and_merge()),
)

# Half a minute to several each.
DEEP = (
    Scenario("split away, markers apart", _split(slots=(0, 1, 1)), apart=True),
    Scenario("merge, crash", _merge(), crashes=("A",)),
    Scenario("opening, crash", _split(), crashes=_ANY, opening=True),
    Scenario("split, expelled", _split(), expulsions=_ANY),
    Scenario("split, finer steps, crash", _split(apart=True), crashes=("A",), thirds=True),
    Scenario("split, reads within, crash", _split(), crashes=("A",), reads_within=True),
    Scenario("split, crash and return", _split(), crashes=("A",), returns=True),
    Scenario("split, markers apart, crash", _split(), apart=True, crashes=("A",)),
    Scenario("merge, commit unanswered", _merge(), unknown=_ANY),
    Scenario("merge, markers apart", _merge(), apart=True),
    Scenario("split and merge, crash", _split_and_merge(), crashes=("A",)),
)

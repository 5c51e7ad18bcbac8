"""What happened in a run, as the checkers read it: facts only.

What a collector does not look at stays empty, and the checkers then say nothing about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import DataTopic, PartitionGap, ProgressBody, ProgressRecord
from tidegate.schemas.progress_chunks import ProgressAssembler

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be; `subject` is the order key or token whose story to tell."""

    text: str
    subject: bytes | str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    order_key: bytes
    commit_timestamp_us: int
    transaction: str
    topic: str
    key: bytes
    token: str | None = None  # the stream partition that returns it
    mod: str = "U"
    columns: Row | None = None  # what was captured of the row


@dataclass(frozen=True, slots=True)
class Published:
    topic: str
    topic_partition: int
    offset: int
    order_key: bytes
    key: bytes
    mod: str = ""
    columns: Row | None = None  # what it says was captured of the row
    origin: bytes | None = None  # the header, or the hash of an older value's token; empty: none
    has_tombstone: bool | None = None  # whether its tombstone is the next of its transaction there
    is_copy: bool = False  # put there by the run itself, as a tool that copies topics would


@dataclass(frozen=True, slots=True)
class Parked:
    topic: str  # the data topic that the change belongs to
    offset: int
    order_key: bytes
    key: bytes
    reason: str
    token: str
    name: int = 0  # what its key is called in progress records


@dataclass(frozen=True, slots=True)
class Full:
    """A stream partition stopped because it would have had to park a key too many."""

    token: str
    commit_timestamp_us: int  # of the record that it stopped at
    keys: frozenset[int]  # its parked keys at that moment, by their names in progress records
    may_be_large: bool = False  # whether a change that is no poison may be parked for its size


@dataclass(frozen=True, slots=True)
class PutBack:
    """A record of the dead-letter topic that says up to where a key was put back."""

    topic: str  # the data topic that the key belongs to
    offset: int
    order_key: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class SlotEntry:
    slot: int
    offset: int
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class LineageFact:
    token: str
    parents: tuple[str, ...]
    start_us: int
    end_us: int | None  # its children's start; None while it has none
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryStart:
    at: int  # place in the run's order of events
    worker: str
    token: str
    start_us: int
    at_us: int | None = None  # when, on a clock of the run that does not jump back
    holding: str = ""  # the process and its holding of the slot: others know no earlier queries


@dataclass(frozen=True, slots=True)
class Finish:
    """A transaction with this stream partition's completion marker was committed."""

    at: int
    worker: str
    token: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """A transaction passed the fence and was committed."""

    at: int
    worker: str
    covers: frozenset[int]  # slots whose tokens' records, markers or snapshots it carries
    owned: frozenset[int]  # slots that the group said are this member's when the fence passed
    has_checked: bool  # whether the broker compared anything: an empty fence passes always
    offset_slots: frozenset[int]
    after_fence: int = 0  # records that came after the fence had been passed
    topics: frozenset[str] = frozenset()  # data topics that it has records for
    fixed: tuple[DataTopic, ...] = ()  # data topics that it records
    paused: tuple[tuple[int, int], ...] = ()  # (slot, number of the pause) that it obeys
    with_data: frozenset[int] = frozenset()  # slots whose stream partitions' changes it publishes


@dataclass(frozen=True, slots=True)
class Control:
    """An operator has paused the stream, or resumed it."""

    at: int
    number: int
    is_pause: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A plan's watermark, and the offsets up to which that batch had read."""

    batch: int
    attempt: int  # counts the times that this batch was decided
    watermark_us: int
    read: Mapping[str, Mapping[int, int]]  # topic -> topic partition -> next offset


@dataclass(frozen=True, slots=True)
class View:
    slot: int
    revision: int
    vector: Mapping[tuple[str, int], int]  # (topic, topic partition) -> last offset


@dataclass(frozen=True, slots=True)
class Released:
    number: int
    batch: int
    after_us: int
    through_us: int
    order_keys: tuple[bytes, ...]  # in the order in which they stand
    ordinals: tuple[int, ...] | None = None  # of the same; None where nobody looked


@dataclass(frozen=True, slots=True)
class Mirror:
    """What a mirror held when the release was complete: (topic, key) -> row."""

    through_us: int
    rows: Mapping[tuple[str, bytes], Row]


@dataclass(frozen=True, slots=True)
class MirrorSight:
    """Where the mirrors stood after a batch, by the manifest of its newest release."""

    batch: int
    decided_us: int  # when the batch was decided
    every_us: int  # the least time between two merges, by the settings of the run that decided
    newest: int
    mirror: int | None
    has_ended: bool = False  # the stream: no later batch may bring the mirrors up to date


@dataclass(frozen=True, slots=True)
class Manifested:
    """A release's manifest: its bounds, its size, and each table's version after it."""

    number: int
    after_us: int
    through_us: int
    rows: int
    versions: Mapping[str, int]
    gaps: tuple[PartitionGap, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceptedGap:
    """A gap that the operator was shown, and where it has to end by what Spanner keeps."""

    gap: PartitionGap
    until_us: int


@dataclass(frozen=True, slots=True)
class FleetRead:
    """What a worker has read of the fleet's slots."""

    worker: str
    lowest_us: Mapping[int, int | None]  # slot -> lowest watermark that can move, if changed
    ends: Mapping[int, int]  # slot -> its end for readers of what is committed at that moment


@dataclass(frozen=True, slots=True)
class FleetSight:
    """What a worker goes by of the fleet's slots, some time after the faults."""

    worker: str
    lowest_us: Mapping[int, int]  # of slots in which something can move
    ends_before: Mapping[int, int]  # when it knew less than it has to know by now
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroundFault:
    """Something that no restart repairs happened to topics or retention."""

    at: int
    kind: str
    subjects: frozenset[str]  # topic or stream partitions, of which a worker has to name one
    errors: frozenset[str]  # the classes of error that a worker may stop with because of it


@dataclass(frozen=True, slots=True)
class Stop:
    """An error ended a worker, or holds one of its stream partitions."""

    at: int
    worker: str
    error: str
    exit_code: int | None  # None where the worker goes on with its other stream partitions
    text: str


@dataclass(frozen=True, slots=True)
class Denial:
    at: int
    worker: str
    process: str


@dataclass(frozen=True, slots=True)
class Size:
    what: str
    largest: int
    bound: int


@dataclass(frozen=True, slots=True)
class Limit:
    at_us: int
    topic: str
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker refused a message for its size, which aborted a transaction."""

    at: int
    worker: str
    process: str
    slot: int
    topic: str
    size_bytes: int
    known_bytes_max: int  # the largest limit of the topic that the process has ever known
    record: tuple[str, int | None]  # key and commit time; a progress record has no commit time


@dataclass(frozen=True, slots=True)
class TooLargeStop:
    """A worker ended with an error about a message's size, and what the error names."""

    at_us: int
    worker: str
    topic: str
    size_bytes: int
    limit_bytes: int
    commit_timestamp_us: int | None


@dataclass(slots=True)
class History:
    """What a run did, as the checkers read it."""

    start_us: int
    slots: int
    end_us: int | None = None  # bounded stream: changes after it are not the stream's
    progress_topic: str = ""
    are_tables_recorded: bool = False  # whether no worker writes version 1 of progress records
    has_key_moves: bool = False  # whether keys move between stream partitions that go on
    committed: list[Committed] = field(default_factory=list)  # what is to be published
    filtered: list[Committed] = field(default_factory=list)  # what the workers' filter leaves out
    read_beside: Mapping[str, str] = field(default_factory=dict)  # topic of chunks -> data topic
    lineage: dict[str, LineageFact] = field(default_factory=dict)
    published: list[Published] = field(default_factory=list)
    tombstones: bool = False  # whether a tombstone has to follow each DELETE
    lone_tombstones: list[tuple[str, int, int]] = field(default_factory=list)  # after no change
    parked: list[Parked] = field(default_factory=list)  # by offset, put back or not
    put_back: list[PutBack] = field(default_factory=list)  # in the order in which they stand
    poison: set[bytes] = field(default_factory=set)  # order keys of changes that no Avro can hold
    refused_columns: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Data topic -> columns for which the registry may have refused a version, for a time."""
    refused_tables: Collection[str] = ()  # topics of which the registry may have refused all
    parked_keys_max: int | None = None  # of one stream partition
    full: list[Full] = field(default_factory=list)
    value_schemas: dict[str, dict[int, Row]] = field(default_factory=dict)
    """Topic -> schema id, ascending -> fields and types of the schemas that values have."""
    progress: list[SlotEntry] = field(default_factory=list)  # ascending, compacted ones included
    queries: list[QueryStart] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    fenced: list[Fenced] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    disobeyed: list[str] = field(default_factory=list)  # deeds against what a worker had read
    claims: list[Claim] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)  # order keys in the side table
    mirrors: list[Mirror] = field(default_factory=list)
    manifests: list[Manifested] = field(default_factory=list)  # by number
    mirror_sights: list[MirrorSight] = field(default_factory=list)
    captured: dict[bytes, Row] = field(default_factory=dict)  # order key -> changelog's columns
    ground: list[GroundFault] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    denials: list[Denial] = field(default_factory=list)
    planned_over_change: dict[str, set[int]] = field(default_factory=dict)
    """Topic that was deleted or re-created -> batches that ended later although it was known."""
    accepted: list[AcceptedGap] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)  # ran a minute after a fault of all workers
    skipped: set[bytes] = field(default_factory=set)  # order keys: expired when the reader began
    reported_losses: list[str] = field(default_factory=list)  # of what had expired unread
    sizes: list[Size] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)  # in the order of time
    refusals: list[Refusal] = field(default_factory=list)
    too_large: list[TooLargeStop] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # errors that nothing in the run explains
    held_up: list[str] = field(default_factory=list)  # tokens, while Spanner refused only others
    # Token -> the longest time, in microseconds after the faults, that it waited for a query, was
    # paused although close to the slowest, and was read too far ahead of the fleet's.
    queued: dict[str, int] = field(default_factory=dict)
    paused: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)
    fleet_reads: list[FleetRead] = field(default_factory=list)
    fleet_sights: list[FleetSight] = field(default_factory=list)
    unhealed: list[str] = field(default_factory=list)  # had not come about at the end

    @property
    def watched(self) -> list[Committed]:
        """The changes of the stream that were never parked: they come in their place."""
        parked = {change.order_key for change in self.parked} | self.given_up
        return [change for change in self.within if change.order_key not in parked]

    @property
    def bodies(self) -> list[ProgressBody]:
        return [entry.record.body for entry in self.progress]

    @property
    def gaps(self) -> list[PartitionGap]:
        return [body for body in self.bodies if isinstance(body, PartitionGap)]

    @property
    def given_up(self) -> set[bytes]:
        """Order keys of the changes that lie in a recorded gap and were not published before."""
        gaps = self.gaps
        published = {record.order_key for record in self.published} if gaps else set()
        return {
            change.order_key
            for gap in gaps
            for change in self.within
            if change.token == gap.token
            and gap.covers(change.commit_timestamp_us)
            and change.order_key not in published
        }

    @property
    def redriven(self) -> dict[bytes, Committed]:
        """The changes that were parked, and stand in their data topic by now, by order key."""
        marks: dict[tuple[str, bytes], list[PutBack]] = defaultdict(list)
        for mark in self.put_back:
            marks[mark.topic, mark.key].append(mark)
        done = {
            change.order_key
            for change in self.parked
            if any(
                mark.offset > change.offset and mark.order_key >= change.order_key
                for mark in marks.get((change.topic, change.key), ())
            )
        }
        return {one.order_key: one for one in self.within if one.order_key in done}

    @property
    def all_poison(self) -> set[bytes]:
        """The poison changes, and those that need a version that the registry refused.

        It may be more than there are: each worker needs versions for the columns that it lacks, and
        one for every change of a table that it does not know.
        """
        none: frozenset[str] = frozenset()
        return self.poison | {
            change.order_key
            for change in self.within
            if change.topic in self.refused_tables
            or set(change.columns or ()) & set(self.refused_columns.get(change.topic, none))
        }

    @property
    def within(self) -> list[Committed]:
        return [change for change in self.committed if self.covers(change.commit_timestamp_us)]

    def covers(self, at_us: int) -> bool:
        return at_us >= self.start_us and (self.end_us is None or at_us <= self.end_us)


def is_behind(now: OrderKey, before: OrderKey) -> bool:
    """Whether one change comes before another of its key; those of one instant need not."""
    if now.commit_timestamp_us != before.commit_timestamp_us:
        return now.commit_timestamp_us < before.commit_timestamp_us
    if now.server_transaction_id != before.server_transaction_id:
        return False
    return (now.record_sequence, now.mod_number) < (before.record_sequence, before.mod_number)


def whole_bodies(history: History) -> Iterator[tuple[SlotEntry, ProgressBody]]:
    """Yield what the progress records say, sets of chunks once with the last of them."""
    assemblers: dict[int, ProgressAssembler] = defaultdict(ProgressAssembler)
    for entry in history.progress:
        whole = assemblers[entry.slot].add(entry.record.body, offset=entry.offset)
        if whole is not None:
            yield entry, whole[0]

"""What happened in a run, as the checkers read it: facts only, from any collector.

A simulated run fills it while it goes; a run on real parts fills it afterwards, from the commit log
of Spanner's stand-in, from Kafka and from Delta.  What a collector cannot know stays empty, and the
checkers then say nothing about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

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
    """A change that Spanner committed and the stream watches: the ground truth."""

    order_key: bytes
    commit_timestamp_us: int
    transaction: str
    topic: str
    key: bytes
    token: str | None = None
    """The stream partition that returns it; None where the collector cannot know."""
    mod: str = "U"
    columns: Row | None = None
    """What was captured of the row; None where the mirror is not checked from here."""


@dataclass(frozen=True, slots=True)
class Published:
    """A record that a `read_committed` reader of a data topic gets."""

    topic: str
    topic_partition: int
    offset: int
    order_key: bytes
    key: bytes
    mod: str = ""
    columns: Row | None = None
    """What it says was captured of the row; None where the collector has not read it."""
    origin: bytes | None = None
    """What names its stream partition: the header, or the hash of an older value's token.

    Empty if nothing does; None where the collector has not read it.
    """
    has_tombstone: bool | None = None
    """Whether a record with its key and no value is the next of its Kafka transaction there."""
    is_copy: bool = False
    """Put there by the run itself, as a tool that copies topics would; not the fleet's."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A record that a `read_committed` reader of the dead-letter topic gets."""

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
    """A record that a `read_committed` reader of the progress topic gets."""

    slot: int
    offset: int
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class LineageFact:
    """A stream partition as Spanner made it."""

    token: str
    parents: tuple[str, ...]
    start_us: int
    end_us: int | None  # its children's start; None while it has none
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryStart:
    """A worker began to read a stream partition."""

    at: int  # place in the run's order of events
    worker: str
    token: str
    start_us: int
    at_us: int | None = None  # when, on a clock of the run that does not jump back
    holding: str = ""
    """The process and its holding of the slot: another one knows nothing of earlier queries."""


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
    fixed: tuple[DataTopic, ...] = ()
    """Data topics that it records, in `StreamStarted` or `TableAdded`."""
    paused: tuple[tuple[int, int], ...] = ()
    """(slot, number of the pause): that nothing of the slot is read any more."""
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
    """A snapshot that a reader has put into effect."""

    slot: int
    revision: int
    vector: Mapping[tuple[str, int], int]  # (topic, topic partition) -> last offset


@dataclass(frozen=True, slots=True)
class Released:
    """A release as the sink holds it."""

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
    has_ended: bool = False
    """Whether the stream has ended: no later batch may bring the mirrors up to date."""


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
    lowest_us: Mapping[int, int | None]
    """Slot -> the lowest watermark of what can move in it, where that has changed."""
    ends: Mapping[int, int]
    """Slot -> where readers of what is committed reached its end at that moment."""


@dataclass(frozen=True, slots=True)
class FleetSight:
    """What a worker goes by of the fleet's slots, some time after the faults."""

    worker: str
    lowest_us: Mapping[int, int]  # of slots in which something can move
    ends_before: Mapping[int, int]
    """As in `FleetRead`, when it knew less than it has to know by now."""
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroundFault:
    """Something that no restart repairs happened to topics or retention."""

    at: int
    kind: str
    subjects: frozenset[str]
    """The topic, or the stream partitions that cannot be read on; a worker has to name one."""
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
    """Kafka denied a process access."""

    at: int
    worker: str
    process: str


@dataclass(frozen=True, slots=True)
class Size:
    """How large something was allowed to be, and the largest that it was."""

    what: str
    largest: int
    bound: int


@dataclass(frozen=True, slots=True)
class Limit:
    """How large a message a topic takes, from a moment on."""

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
    record: tuple[str, int | None]
    """Key and commit time of the change; a progress record has no commit time."""


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
    are_tables_recorded: bool = False
    """Whether no worker of the run writes version 1 of the progress records."""
    has_key_moves: bool = False  # whether keys move between stream partitions that go on
    committed: list[Committed] = field(default_factory=list)  # what is to be published
    filtered: list[Committed] = field(default_factory=list)
    """What the filter of the workers leaves out."""
    read_beside: Mapping[str, str] = field(default_factory=dict)
    """Topic of rows that were read in chunks -> the data topic of their table."""
    lineage: dict[str, LineageFact] = field(default_factory=dict)
    published: list[Published] = field(default_factory=list)
    tombstones: bool = False  # whether a tombstone has to follow each DELETE
    lone_tombstones: list[tuple[str, int, int]] = field(default_factory=list)
    """(data topic, topic partition, offset) of those that follow no change of their key."""
    parked: list[Parked] = field(default_factory=list)
    """In the order in which they stand, those that were put back included."""
    put_back: list[PutBack] = field(default_factory=list)  # in the order in which they stand
    poison: set[bytes] = field(default_factory=set)
    """Order keys of changes whose values could not be read, or not be written as Avro."""
    refused_columns: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Data topic -> columns for which the registry may have refused a version, for a time."""
    refused_tables: Collection[str] = ()
    """Data topics for which the registry may have refused every version that a worker asked for."""
    parked_keys_max: int | None = None
    """So many keys a stream partition may park; None where the collector does not say."""
    full: list[Full] = field(default_factory=list)
    value_schemas: dict[str, dict[int, Row]] = field(default_factory=dict)
    """Topic -> schema id -> the row's fields and their types; those that values are written with.

    Ascending by id.
    """
    progress: list[SlotEntry] = field(default_factory=list)
    """Ascending by slot and offset; what compaction removed is in it all the same, if known."""
    queries: list[QueryStart] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    fenced: list[Fenced] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    disobeyed: list[str] = field(default_factory=list)
    """What workers did against what operators had said, as each of them had read it."""
    claims: list[Claim] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    late: list[bytes] = field(default_factory=list)  # order keys in the side table
    mirrors: list[Mirror] = field(default_factory=list)
    manifests: list[Manifested] = field(default_factory=list)  # by number
    mirror_sights: list[MirrorSight] = field(default_factory=list)
    captured: dict[bytes, Row] = field(default_factory=dict)
    """Order key -> the columns of the released change, as the changelog holds them."""
    ground: list[GroundFault] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    denials: list[Denial] = field(default_factory=list)
    planned_over_change: dict[str, set[int]] = field(default_factory=dict)
    """Topic that was deleted or re-created -> batches that ended later although it was known."""
    accepted: list[AcceptedGap] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)
    """Workers that still ran a minute after a fault that concerns all of them."""
    skipped: set[bytes] = field(default_factory=set)
    """Order keys of what had expired when the reader began: its output begins after them."""
    reported_losses: list[str] = field(default_factory=list)
    """What the reader refused to go on after, since it had expired before it was read."""
    sizes: list[Size] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)  # in the order of time
    refusals: list[Refusal] = field(default_factory=list)
    too_large: list[TooLargeStop] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Errors that nothing in the run explains: a core's invariant, a refused record."""
    held_up: list[str] = field(default_factory=list)
    """Tokens that did not get on while Spanner refused others, without any other fault."""
    queued: dict[str, int] = field(default_factory=dict)
    """Token -> the longest time that it waited for a query after the faults; microseconds."""
    paused: dict[str, int] = field(default_factory=dict)
    """Token -> the longest time that it was paused and close to the slowest, as `queued`."""
    fleet_reads: list[FleetRead] = field(default_factory=list)
    fleet_sights: list[FleetSight] = field(default_factory=list)
    ahead: dict[str, int] = field(default_factory=dict)
    """Token -> the longest time that it was read too far ahead of the fleet's, as `queued`."""
    unhealed: list[str] = field(default_factory=list)
    """What had not come about when the budget after healing was used up."""

    @property
    def watched(self) -> list[Committed]:
        """The changes of the stream that were never parked: they come in their place.

        Without those that were given up.
        """
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
        """Whether a commit time lies between the stream's start and its end."""
        return at_us >= self.start_us and (self.end_us is None or at_us <= self.end_us)


def whole_bodies(history: History) -> Iterator[tuple[SlotEntry, ProgressBody]]:
    """Yield what the progress records say, sets of chunks once with the last of them."""
    assemblers: dict[int, ProgressAssembler] = defaultdict(ProgressAssembler)
    for entry in history.progress:
        whole = assemblers[entry.slot].add(entry.record.body, offset=entry.offset)
        if whole is not None:
            yield entry, whole[0]

"""Translation and publishing that are broken on purpose: values, keys, what is parked or left out.

Some break it where only tables of any schema show it.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from unittest.mock import patch

from tests.simulation.backfill import ChunkedSpanner
from tests.simulation.mutant import Mutants
from tests.simulation.weather import ANY_SCHEMA
from tidegate.lineage import slot_view
from tidegate.producer.core import publication
from tidegate.producer.core.publication import PARKED_KEYS_MAX, ParkedKeys
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.sole_workers import RedrivingWorker
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.undeliverable import UndeliverableRecords
from tidegate.producer.errors import MessageTooLarge, TooManyParkedKeys
from tidegate.producer.memory.broker import TOMBSTONE
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.translation import (
    change_writer,
    keys,
    table_evolution,
    table_refresh,
    table_registrar,
    translator,
    values,
)
from tidegate.producer.translation.avro_fields import NULL
from tidegate.producer.translation.pipeline import Parking, SizeLimits, TranslationPipeline
from tidegate.producer.translation.table_evolution import evolve
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas import progress_chunks
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.topics import ROOT_TOKEN

BROKEN = Mutants()


_divert, _announce = ParkedKeys.divert, StreamPartition.announce
_restore = StreamPartition.restore.__func__
_by_change, _park = TranslationPipeline._by_change, Parking.park
_refresh = TableRefresher.translate


@BROKEN.add("a later change of a parked key published", "parking", (ParkedKeys, "divert"))
def _(self, record, *, token):
    diverted, _ = _divert(ParkedKeys(), record, token=token)
    return diverted, ParkedKeys(self.keys, self.changes + len(diverted.parked))


BROKEN.add(
    "a merged child with the parked keys of one parent", "key_order", (StreamPartition, "announce")
)(
    lambda self, parent, parked_keys=(): _announce(
        self, parent, parked_keys if not self.heard else ()
    )
)
BROKEN.add(
    "the good changes of a record dropped with the one that is poison",
    "nothing_lost",
    (TranslationPipeline, "_by_change"),
)(
    lambda self, record, token, parking: _by_change(self, record, token, parking)._replace(
        messages=()
    )
)
BROKEN.add("a change parked under the place of its record's first", "parking", (Parking, "park"))(
    lambda self, record, error, token: _park(
        self, record._replace(first_mod_number=0), error, token
    )
)


@BROKEN.add("keys parked beyond the limit", "parked_limit", (ParkedKeys, "divert"))
def _(self, record, *, token):
    with patch.object(publication, "PARKED_KEYS_MAX", PARKED_KEYS_MAX):
        return _divert(self, record, token=token)


@BROKEN.add(
    "a stream partition that is full stopped by a key that it has parked",
    "parked_limit",
    (ParkedKeys, "divert"),
)
def _(self, record, *, token):
    """Count a key that is parked already as one more."""
    limit = publication.PARKED_KEYS_MAX
    if record.parked and len(self.keys) >= limit:
        at_us = record.commit_timestamp_us
        raise TooManyParkedKeys(token, keys=len(self.keys), commit_timestamp_us=at_us)
    return _divert(self, record, token=token)


def _only(mod, names):
    new = {name: value for name, value in mod.new_values.items() if name in names}
    return mod._replace(new_values=new)


@BROKEN.add(
    "a column that the registry refuses left out of its change",
    "values",
    (TableRefresher, "translate"),
)
def _(self, record, *, token):
    try:
        return _refresh(self, record, token=token)
    except SchemaError as error:
        if "subject" not in error.fields:
            raise
    table = self._translator.encoding(record.table_name).table
    names = {column.name for column in table.columns}
    kept = tuple(column for column in record.columns if column.name in names)
    mods = tuple(_only(mod, names) for mod in record.mods)
    return self._translator.translate(record._replace(columns=kept, mods=mods), token=token)


_publish_records = MemoryPublisher.publish_records


@BROKEN.add(
    "changes put back outside of the transaction",
    "nothing_twice",
    (MemoryPublisher, "publish_records"),
)
def _(self, effect):
    """A second attempt does so again."""
    if effect.token != ROOT_TOKEN:
        return _publish_records(self, effect)
    for record in effect.records:
        for message in record.messages:
            place = self._place(message.topic, message.key)
            self.broker.logs[place].append(message.key, message, None)
    kept = tuple(record._replace(messages=()) for record in effect.records)
    return _publish_records(self, replace(effect, records=kept))


BROKEN.add("a key that was put back not released", "parking", (Slot, "put_back"))(
    lambda self, keys: False
)


@BROKEN.add("a redrive beside workers that have slots", "parking", (RedrivingWorker, "is_ready"))
@property
def _(self):
    return self.stream is not None and bool(self.slots)


_parse_ns, _name_list = values.parse_rfc3339_ns, change_writer._name_list
_origin = translator.Translator._origin


BROKEN.add(
    "nanoseconds of a timestamp cut off where it has microseconds",
    "values",
    (values, "parse_rfc3339_ns"),
)(lambda text: _parse_ns(text) // 1_000 * 1_000)
BROKEN.add(
    "timestamps as text with the digits that they came with",
    "values",
    (values, "canonical_rfc3339"),
)(str)


@BROKEN.add("the header of another stream partition", "origins", (translator.Translator, "_origin"))
def _(self, token):
    """Name the stream partition whose record came first."""
    origin = self._origins.setdefault(token, next(iter(self._origins.values()), b""))
    return origin or _origin(self, token)


@BROKEN.add(
    "columns named only where the writer knows more", "values", (change_writer, "_name_list")
)
def _(names, row):
    """Leave them out where the writer knows no other column; a reader may know one."""
    return NULL if len(names) == len(row) else _name_list(names, row)


@BROKEN.add("dropped columns forgotten", "soundness", (table_refresh, "evolve"))
def _(known, current, shown, **options):
    """Forget dropped columns whose records are still to come."""
    return evolve(None, current, () if current else shown, **options)


BROKEN.add(
    "schemas grown from the memory of one process", "schema_growth", (table_registrar, "grown")
)(lambda own, versions, *, table: own)


_published, _require = TranslationPipeline._published, SizeLimits.require
_stop_after = UndeliverableRecords.refused
_joined, _join = slot_view._joined, progress_chunks._join


@BROKEN.add(
    "a change that is too large left out", "nothing_lost", (TranslationPipeline, "_published")
)
def _(self, record, token):
    try:
        return _published(self, record, token)
    except MessageTooLarge:
        whole = self.refresher.translate(record, token=token)
        bytes_max = self.limits._limits.bytes_max
        kept = tuple(m for m in whole.messages if m.size_bytes <= bytes_max(m.topic))
        return whole._replace(messages=kept)


class _Known:
    """Limits that are never read again."""

    def __init__(self, limits):
        self.bytes_max = limits.bytes_max

    def refresh(self):
        pass


@BROKEN.add("a limit that was raised not read", "undeliverable", (SizeLimits, "require"))
def _(self, translated, record):
    if not isinstance(self._limits, _Known):
        self._limits = _Known(self._limits)
    _require(self, translated, record)


@BROKEN.add("a stop that names another record", "undeliverable", (UndeliverableRecords, "refused"))
def _(self, failure):
    nameless = None if failure is None else replace(failure, commit_timestamp_us=1)
    return _stop_after(self, nameless)


BROKEN.add("a vector of which the gate reads the first chunk", "watermark", (slot_view, "_joined"))(
    lambda before, body: replace(_joined(before, body), vector=before.vector)
)


_find_value = TableRegistrar._find_value
_begin, _enqueue = MemoryPublisher.begin, MemoryPublisher._enqueue
_row_at = ChunkedSpanner._row_at


@BROKEN.add(
    "a restart that forgets how much was left out", "completeness", (StreamPartition, "restore")
)
@classmethod
def _(cls, snapshot):
    return _restore(cls, replace(snapshot, filtered=0))


@BROKEN.add(
    "value schemas that do not say what is left out", "soundness", (TableRegistrar, "_find_value")
)
def _(self, topic, table):
    self._filter = RecordFilter()
    return _find_value(self, topic, table)


def _begin_with_what_was_held_back(self, metadata):
    outcome = _begin(self, metadata)
    for queued in self.__dict__.pop("held_back", ()) if outcome is None else ():
        _enqueue(self, queued)
    return outcome


@BROKEN.add(
    "a tombstone in the transaction after that of its DELETE",
    "tombstones",
    (MemoryPublisher, "_enqueue"),
    beside=((MemoryPublisher, "begin", _begin_with_what_was_held_back),),
)
def _(self, queued):
    if queued.value is TOMBSTONE and queued.place[0] != self._progress_topic:
        self.held_back = [*getattr(self, "held_back", ()), queued]
    else:
        _enqueue(self, queued)


BROKEN.add(
    "a chunk that states a later time than it was read at",
    "chunk_rows",
    (ChunkedSpanner, "_row_at"),
)(lambda self, key, at_us: _row_at(self, key, at_us - 1_000_000))


BROKEN.add(
    "zeros in a key with their signs", "key_order", (keys, "_number"), first_seed=ANY_SCHEMA
)(lambda number: number)


@BROKEN.add(
    "a parked key known by its text", "parking", (publication, "parked_key"), first_seed=ANY_SCHEMA
)
def _(topic, key):
    """Bytes that are no text are all the same."""
    return parked_key(topic, key.decode("ascii", "replace").encode())


BROKEN.add(
    "the key of a dropped table in the order of its ordinals",
    "soundness",
    (TableRegistrar, "key_names"),
    first_seed=ANY_SCHEMA,
)(lambda self, table: ())
BROKEN.add("a NUMERIC through a double", "values", (values, "_decimal"), first_seed=ANY_SCHEMA)(
    lambda kind, value: Decimal(float(value))
)
BROKEN.add(
    "names of columns compared with case",
    "soundness",
    (table_evolution, "folded"),
    (table_registrar, "folded"),
    (translator, "folded"),
    first_seed=ANY_SCHEMA,
)(lambda name: name)

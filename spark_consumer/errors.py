"""The gate's branch of the error tree.

ConsumerError
├── ProtocolError           records of the progress topic break the protocol (lineage/errors.py)
│   └── MixedEpochs         records of two epochs in one progress topic
├── UnorderedChange         a data record without a usable order key
├── CheckpointMismatch      Spark's checkpoint and the gate's do not belong together
│   └── NewerCheckpoint     a newer version of Tidegate wrote the checkpoint
├── ChangesExpired          Kafka has removed records that were not read yet
├── DataTopicChanged        a data topic was deleted, or re-created under its name
├── ConflictingCopies       two records with one order key that are not the same change
├── SegmentDamaged          a pending segment is not as it was written
├── ChangesNotConserved     changes that were read are neither released nor waiting
├── TransactionIncomplete   a transaction has not as many records as they state
├── StreamPartitionIncomplete  a stream partition has not the changes that its marker states
├── CountsMissing           Spark has not reported what a job counted
├── CheckpointConflict      a replaced run has written to this checkpoint late
├── ReportFailed            Spark has finished a batch and failed at its report of it
├── WriterReplaced          a younger run has taken this checkpoint
│   └── TopicWriterReplaced it publishes to the ordered topic
├── CommitOvertaken         other writers committed to an Iceberg table during each attempt
├── ReleaseUnconfirmed      Kafka has not confirmed a release of the ordered topic
└── RunStopped              Spark started a batch while the run was stopping

ConfigError
├── FilteredMirror          the change stream leaves out what a mirror needs
├── AmbiguousNames          columns of a table, or tables, have names that differ in case only
├── ForeignChange           another writer has changed the rows of a table
├── RecordTooLarge          the ordered topic does not take a record of this size
├── ReleasesMissing         the ordered topic lacks releases that were written to it
├── ReleaseVacuumed         files of a release's tables were deleted
├── TableMissing            a table of the output was deleted, or is an older copy
├── TransactionTooLarge     a transaction cannot be one row, or one record, of an output
└── UnreadableEnvelope      the stream's values are made for other programs

SchemaError
└── UndecodableRecord       a record of a data topic cannot be read
    └── UnknownSchema       it names a schema that is not one of its topic
"""

from __future__ import annotations

from tidegate.schemas.errors import ConfigError, ConsumerError, ExitCode, SchemaError

__all__ = [
    "AMBIGUOUS_NAMES_HINT",
    "BAD_RECORD_HINT",
    "AmbiguousNames",
    "ChangesExpired",
    "ChangesNotConserved",
    "CheckpointConflict",
    "CheckpointMismatch",
    "CommitOvertaken",
    "ConflictingCopies",
    "CountsMissing",
    "DataTopicChanged",
    "FilteredMirror",
    "ForeignChange",
    "NewerCheckpoint",
    "RecordTooLarge",
    "ReleaseUnconfirmed",
    "ReleaseVacuumed",
    "ReleasesMissing",
    "ReportFailed",
    "RunStopped",
    "SegmentDamaged",
    "StreamPartitionIncomplete",
    "TableMissing",
    "TopicWriterReplaced",
    "TransactionIncomplete",
    "TransactionTooLarge",
    "UndecodableRecord",
    "UnknownSchema",
    "UnorderedChange",
    "UnreadableEnvelope",
    "WriterReplaced",
]


BAD_RECORD_HINT = (
    "Only Tidegate's workers may write to data topics: find the other writer of this record. "
    'on_bad_record = "dead_letter" sets such records aside in the table dead_letters of the output'
)
"""What to do about a record of a data topic that is not a change."""


class UnorderedChange(ConsumerError):  # noqa: N818 - named after what was found
    """A record in a data topic has no order key in its first header: no worker wrote it."""

    exit_code = ExitCode.USAGE


class UndecodableRecord(SchemaError):  # noqa: N818 - named after what was found
    """A record in a data topic does not hold what its schema says, or names no stream partition."""

    exit_code = ExitCode.USAGE


class UnknownSchema(UndecodableRecord):
    """A record in a data topic names a schema that the registry lacks, or that of another topic."""


class CheckpointMismatch(ConsumerError):  # noqa: N818 - named after what was found
    """The two halves of a checkpoint, or a checkpoint and its settings, do not belong together."""


class NewerCheckpoint(CheckpointMismatch):
    """A newer version of Tidegate has written a state or a plan that this one cannot read."""


class ChangesExpired(ConsumerError):  # noqa: N818 - named after what happened
    """Records were removed from Kafka, by retention or an operator, before the gate read them."""

    exit_code = ExitCode.USAGE


class DataTopicChanged(ConsumerError):  # noqa: N818 - named after what was found
    """A topic was deleted or re-created since the stream began: its records are gone."""

    exit_code = ExitCode.USAGE


class ConflictingCopies(ConsumerError):  # noqa: N818 - named after what was found
    """Two records have one order key and differ: one of them is not the committed change."""

    exit_code = ExitCode.USAGE


class SegmentDamaged(ConsumerError):  # noqa: N818 - named after what was found
    """A segment of waiting changes is missing, or does not hold the changes written to it."""


class ChangesNotConserved(ConsumerError):  # noqa: N818 - named after what was found
    """The counts of a batch do not agree: continuing could lose changes."""


class TransactionIncomplete(ConsumerError):  # noqa: N818 - named after what was found
    """A transaction has not as many records as they state; nothing of its release was written."""


class StreamPartitionIncomplete(ConsumerError):  # noqa: N818 - named after what was found
    """The changes of a stream partition are not those that its completion marker states.

    Nothing of the release that ends it was written.
    """


class CountsMissing(ConsumerError):  # noqa: N818 - named after what was found
    """A job has ended and Spark has not delivered its counts; nothing was written."""


class CheckpointConflict(ConsumerError):  # noqa: N818 - named after what was found
    """Another run has written a file that this one, the checkpoint's writer, was about to write.

    Nothing is lost: the query can be started again, and continues with that file.
    """

    retriable = True


class ReportFailed(ConsumerError):  # noqa: N818 - named after what happened
    """Spark's Kafka source has ended the query at the report of a batch, which is whole.

    Nothing is lost: the query can be started again, and continues after that batch.
    """

    retriable = True


class WriterReplaced(ConsumerError):  # noqa: N818 - named after what was found
    """A younger run has taken this checkpoint; this one must stop writing."""


class TopicWriterReplaced(WriterReplaced):
    """A younger run publishes to the ordered topic; this one must stop writing."""


class ReleaseUnconfirmed(ConsumerError):  # noqa: N818 - named after what was found
    """Kafka aborted the transaction of a release, or did not say whether it was committed.

    The next attempt reads the end of the topic before it publishes anything.
    """

    retriable = True


class CommitOvertaken(ConsumerError):  # noqa: N818 - named after what happened
    """Other writers have committed to an Iceberg table during each attempt to write a release.

    Nothing of the release is in that table; the next attempt writes it.
    """

    retriable = True


class RunStopped(ConsumerError):  # noqa: N818 - named after what happened
    """Spark started a batch while the run was stopping; the next run does it."""


class FilteredMirror(ConfigError):  # noqa: N818 - named after what was found
    """The change stream leaves out changes or columns: a mirror would not equal its table."""


AMBIGUOUS_NAMES_HINT = (
    "Producers of this version publish such columns as one and refuse such tables: begin a new "
    "stream under another prefix, with an output of its own"
)


class AmbiguousNames(ConfigError):  # noqa: N818 - named after what was found
    """Columns of a table, or tables, have names that differ in case only.

    Spark, Delta and many stores and catalogs take them for one, as Spanner does.
    """


class ForeignChange(ConfigError):  # noqa: N818 - named after what was found
    """Another writer changed the rows of a table of the output, or may have undone a release."""


class TableMissing(ConfigError):  # noqa: N818 - named after what was found
    """A table of the output is not there any more, or lacks releases that a manifest names."""


class RecordTooLarge(ConfigError):  # noqa: N818 - named after what was found
    """A change, or a transaction as one record, is larger than the ordered topic takes."""


class ReleasesMissing(ConfigError):  # noqa: N818 - named after what was found
    """The ordered topic, or its releases topic, lacks releases that were written to it."""


class TransactionTooLarge(ConfigError):  # noqa: N818 - named after what was found
    """A sink by transaction has a row for each one, and this one has too many changes for that."""


class UnreadableEnvelope(ConfigError):  # noqa: N818 - named after what was found
    """The stream's values have an envelope other than Tidegate's, which no sink takes."""


class ReleaseVacuumed(ConfigError):  # noqa: N818 - named after what was found
    """A run has deleted files that the tables of a release need (`vacuum_retention_hours`)."""


DEAD_LETTERS = "dead_letters"
"""The table's folder in the output."""


def with_dead_letters(hint: str, dead_letters: int) -> str:
    """Return the hint of an error about missing changes: one of them may be a dead letter."""
    if not dead_letters:
        return hint
    return (
        f"{hint}. The output's table {DEAD_LETTERS} has {dead_letters} records that could not be "
        "read: look first whether the missing changes are among them"
    )

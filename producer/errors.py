"""The fleet's branch of the error tree.

    ProducerError
    ├── QueryError              a change stream query ended without OK; `code` is gRPC's name
    │   ├── QueryInterrupted    the service may answer later                       retriable
    │   ├── QueryRefused        the service will not answer any query before the cause is removed
    │   │   └── ConditionRefused    a backfill's condition cannot be evaluated for all rows
    │   ├── TokenRefused        the service does not accept this stream partition's token
    │   └── PositionExpired     the requested time is outside retention
    ├── InitialQueryChange      no later query returns a change of the initial query       exit 2
    ├── SourceOrderBroken       a query returned a record before the position that it had reached
    ├── ProducerFencedError     another process publishes under this worker's name
    ├── StreamChangedError      the progress topic belongs to another stream, or its topics changed
    ├── TopicsChangedError      a topic was deleted, re-created or given more topic partitions
    ├── ProgressLost            a slot lacks records that its owner has to read
    ├── TableChanged            a record shows a column or type that is not known yet
    ├── TooManyParkedKeys       a stream partition would park more keys than it may
    ├── RedriveFailed           parked changes were not put back
    ├── GapNotAccepted          a stream partition was not moved past changes that have expired
    ├── EndNotReached           only stopped stream partitions keep a bounded stream from its end
    ├── EndedInGap              a stream partition ended within expired changes           exit 2
    ├── CommandNotWritten       an operator's command is not in the progress topic
    ├── IncompatibleChange      a table changed in a way that its topic's schema cannot follow
    ├── SourceFileError         a file of the source, or an event in it, cannot be used       exit 2
    └── DeliveryRefused         Kafka rejects a record until the cause is removed
        ├── MessageTooLarge     it is larger than its topic takes
        └── DeliveryDenied      the principal may not write to its topic                  exit 2

A record that cannot be decoded or represented is a `SchemaError` with its coordinates; a stream
that no worker has opened is a `StreamNotStarted`, a command that its state does not permit a
`CommandRefused`, a topic that Kafka does not create a `TopicRefused`: all are a `ConfigError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from tidegate.schemas.errors import (
    ConfigError,
    ExitCode,
    InvariantViolation,
    ProducerError,
    TidegateError,
)

_KEY_SHOWN_MAX = 100


def without_frames(error: TidegateError) -> TidegateError:
    """Return the error without its traceback and those of its causes, so that it can be kept.

    The frames hold the response that was read when the error was raised, and its records: memory
    that the byte budget counts as free.  A bug keeps them, because it stops the worker.
    """
    if not isinstance(error, InvariantViolation):
        for link in causes_of(error):
            link.__traceback__ = None
    return error


def causes_of(error: BaseException) -> list[BaseException]:
    """Return an error and its causes, each once.

    A cause that is raised again from the error that it caused closes a circle.
    """
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is known for known in links):
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


class QueryError(ProducerError):
    """A change stream query ended without OK; the field `code` has the name of gRPC's status."""

    @property
    def code(self) -> str:
        """The name of gRPC's status code, such as `UNAVAILABLE`."""
        return str(self.fields.get("code", "UNKNOWN"))

    @property
    def pause_us(self) -> int:
        """The pause that the service asks for before the next attempt; 0 if it asks for none."""
        pause_us = self.fields.get("pause_us", 0)
        return pause_us if isinstance(pause_us, int) else 0


class QueryInterrupted(QueryError):  # noqa: N818 - named for what happened
    """The service could not answer temporarily; the same query may work later."""

    retriable = True


class QueryRefused(QueryError):  # noqa: N818 - named for what happened
    """The service rejects the query until a permission, a name or an argument is changed.

    The cause is common to all queries: others are rejected too.
    """


class ConditionRefused(QueryRefused):
    """The condition of a backfill cannot be evaluated, whenever it is tried; ends the backfill."""


class TokenRefused(QueryError):  # noqa: N818 - named for what happened
    """The service rejects the query because of its token; other stream partitions can be read."""


class PositionExpired(QueryError):  # noqa: N818 - named for what happened
    """The requested changes are gone, or not there yet: the fields name the interval.

    Never skipped: continuing at a later position would leave a gap.
    """


class SourceFileError(ProducerError):
    """A file of the source, or an event in it, cannot be used."""

    exit_code = ExitCode.USAGE


class SourceOrderBroken(ProducerError):  # noqa: N818 - named for what happened
    """A query returned a record before the position that the stream partition had reached.

    The order of later records cannot be trusted either.
    """


class InitialQueryChange(ProducerError):  # noqa: N818 - named for what happened
    """The initial query returned a change, or a move of keys, before the stream partitions.

    Its time is before the start of all of them, so no other query returns it, and it would be lost:
    the stream's records have no place for it.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, **fields: object) -> None:
        super().__init__(
            "the initial query returned a change, which no stream partition returns again",
            hint=(
                "Nothing was published. Begin the stream after this commit time (setting start), "
                "if it can do without the change, and report it"
            ),
            **fields,
        )


class ProducerFencedError(ProducerError):
    """Another process took over this worker's transactional id; two with one name cannot work."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            "another process runs under this worker's name",
            hint="Give every worker process a name of its own (setting worker)",
            worker=worker,
        )


class StreamChangedError(ProducerError):
    """Stream or topics differ from those of the epoch; keys would move between topic partitions."""

    exit_code = ExitCode.USAGE

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            f"the progress topic belongs to another stream: {'; '.join(differences)}",
            hint="Use another prefix, or undo the change",
        )


class TopicsChangedError(ProducerError):
    """Topics have changed since the worker started; this cannot be undone.

    With more topic partitions, keys would move; the records of a deleted topic are lost.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(
            "; ".join(differences),
            hint=(
                "Kafka can neither remove topic partitions nor bring back records: find out who "
                "changed the topics, then see docs/how-to/reset.md"
            ),
        )


class ProgressLost(ProducerError):  # noqa: N818 - named for what happened
    """A slot lacks records that its owner has to read: it was truncated, emptied or re-created.

    Reading on from another offset would restore stream partitions that have finished, or lose
    others that have not.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, slot: int, **fields: object) -> None:
        super().__init__(
            f"the progress topic lost records: {message}",
            hint=(
                "It must keep cleanup.policy=compact and must not be truncated, deleted or "
                "re-created: see docs/how-to/reset.md"
            ),
            slot=slot,
            **fields,
        )


class TableChanged(ProducerError):  # noqa: N818 - named for what happened
    """A record shows a table, column or type that the known schema does not have.

    The translation reads the catalogue again, registers the new version, and retries once.
    """

    @property
    def table(self) -> str:
        """The table's name, as Spanner reports it."""
        return str(self.fields["table"])


class IncompatibleChange(ProducerError):  # noqa: N818 - named for what happened
    """A column's new type, or a new primary key, cannot be represented in the topic's schema."""


class TooManyParkedKeys(ProducerError):  # noqa: N818 - named for what happened
    """A stream partition has parked as many keys as it may, and would have to park another one.

    `reason` is why a change of that key cannot be published.
    """

    def __init__(self, token: str, **fields: object) -> None:
        super().__init__(
            "a stream partition has as many parked keys as it may have",
            hint=(
                "Remove what keeps the changes from being published, put the parked ones back "
                "(tidegate-producer redrive), then start the workers again"
            ),
            token=token,
            **fields,
        )


class RedriveFailed(ProducerError):  # noqa: N818 - named for what happened
    """Parked changes were not put back, or the outcome is unknown."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(
            f"parked changes were not put back: {reason}",
            hint=(
                "Nothing is half done: either all of it was committed, or nothing. Run it again; "
                "what was put back is not put back twice"
            ),
            **fields,
        )


class GapNotAccepted(ProducerError):  # noqa: N818 - named for what happened
    """A gap was not accepted, or the outcome is unknown."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(
            f"the gap was not accepted: {reason}",
            hint=(
                "Nothing is half done: either all of it was committed, or nothing. Run it again; "
                "a gap is not accepted twice"
            ),
            **fields,
        )


class EndedInGap(ProducerError):  # noqa: N818 - named for what happened
    """A stream partition ended within the expired changes, or soon after them.

    It no longer shows its children, and so none of the later changes of its keys.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, token: str, **fields: object) -> None:
        super().__init__(
            "a stream partition ended within the changes that can no longer be read, so its "
            "children are not known",
            hint=(
                "Nothing was accepted. Start a new epoch and reload the tables; only if it ended "
                "within --margin-s after the first change that can be read, a shorter one helps"
            ),
            token=token,
            **fields,
        )


class DeliveryRefused(ProducerError):  # noqa: N818 - named for what happened
    """Kafka rejects a record permanently, until the cause is removed; made by `of`.

    The fields name it: `topic`, `key` (bounded), `commit_timestamp_us`, `size_bytes` and, where
    known, `table`, `reason` (Kafka's name of the error) and `limit_bytes`.  A progress record has
    no commit time.
    """

    text: ClassVar[str] = "Kafka refuses a record"
    fix: ClassVar[str] = "Look at the settings of the topic and at the broker's log"
    fixes: ClassVar[Mapping[str, str]] = {
        "INVALID_TIMESTAMP": (
            "Set the clock of the worker's machine: the topic refuses times that differ too much "
            "from the broker's (message.timestamp.after.max.ms, message.timestamp.before.max.ms)"
        ),
        "UNSUPPORTED_COMPRESSION_TYPE": (
            "Set compression.type in kafka_options to one that the Kafka service supports, such as "
            "gzip or none"
        ),
    }
    """The fix by reason, for reasons with a known fix."""

    @classmethod
    def of(cls, topic: str, *, key: str, reason: str = "", **fields: object) -> Self:
        """Return the error about one record; None fields are left out."""
        shown = key if len(key) <= _KEY_SHOWN_MAX else f"{key[:_KEY_SHOWN_MAX]}…"
        context = {name: value for name, value in fields.items() if value is not None}
        context |= {"reason": reason} if reason else {}
        return cls(cls.text, hint=cls.fixes.get(reason, cls.fix), topic=topic, key=shown, **context)


class MessageTooLarge(DeliveryRefused):
    """A record is larger than its topic's limit, `limit_bytes`, before compression."""

    text = "a record is larger than its topic takes"
    fix = (
        "Raise the topic's max.message.bytes to size_bytes or more (and what limits it: "
        "segment.bytes, the brokers' socket.request.max.bytes), then restart the worker"
    )


class DeliveryDenied(DeliveryRefused):
    """The principal may not write to the record's topic."""

    exit_code = ExitCode.USAGE
    text = "Kafka denies writing to a topic"
    fix = "Add the ACLs that docs/reference/permissions.md lists"


_RERUN_HINT = "Run it again: to say it twice changes nothing"


class CommandNotWritten(ProducerError):  # noqa: N818 - named for what happened
    """An operator's command was not committed, or the outcome is unknown."""

    def __init__(self, reason: str, *, place: str = "the progress topic", look: str = "") -> None:
        """Take the reason, and where the command was to be written.

        `look` is the flag that shows it, for a command that is not the same if it is run twice.
        """
        message = f"the command is not known to be in {place}: {reason}"
        hint = f"Look with {look} whether it is known; if it is not, run it again"
        super().__init__(message, hint=hint if look else _RERUN_HINT)


class CommandRefused(ConfigError):  # noqa: N818 - named for what happened
    """The state of a stream does not permit a command; nothing was changed."""

    def __init__(self, command: str, state: str, *, hint: str) -> None:
        """Take the command as it is typed, the state as `status` names it, and what to do."""
        message = f"`{command}` is refused: the stream is {state}"
        super().__init__(message, hint=hint)


class EndNotReached(ProducerError):  # noqa: N818 - named for what is so
    """Only stopped stream partitions, and those after them, keep a bounded stream from its end."""

    def __init__(self, token: str, reason: str, *, stopped: int) -> None:
        """Take the slowest stopped stream partition, why it stopped, and how many did."""
        super().__init__(
            "the stream does not reach its end: a stream partition is stopped",
            hint="Remove the cause (docs/reference/failures.md), then start the worker again",
            token=token,
            reason=reason,
            stopped=stopped,
        )


class StreamNotStarted(ConfigError):  # noqa: N818 - named for what is so
    """No worker has opened a stream in this progress topic."""

    def __init__(self, topic: str) -> None:
        """Take the progress topic's name."""
        message = f"topic {topic} holds no stream: nothing was ever published"
        super().__init__(message, hint="Check the prefix")


class TopicRefused(ConfigError):  # noqa: N818 - named for what happened
    """Kafka permanently refuses to create a topic: its name, a policy, or a missing right.

    For a later table it stops, or parks, the table's changes.
    """

"""Every error that Tidegate raises on purpose, in one tree.

    TidegateError
    ├── ConfigError             a setting is wrong: the operator fixes it           exit 2
    ├── UnreachableError        a broker, registry or Spanner does not answer       exit 75
    ├── SchemaError             bytes or a schema do not match the contract         exit 1
    │   ├── SchemaNotKept       the registry does not keep what readers need        exit 2
    │   ├── SchemaNotFound      the registry has no schema with an id               exit 1
    │   └── UnreadableProgress  a record of a progress topic cannot be read         exit 2
    ├── ProducerError           the producer's branch (producer/errors.py)          exit 1
    ├── ConsumerError           the consumer's branch (spark_consumer/errors.py)    exit 1
    └── InvariantViolation      a bug in Tidegate                                   exit 70

An error has a message, fields that identify its subject, and a hint for the operator.  Retry
policies look at `retriable` of its class only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Self

__all__ = [
    "ConfigError",
    "ConsumerError",
    "ExitCode",
    "InvariantViolation",
    "ProducerError",
    "SchemaError",
    "SchemaNotFound",
    "SchemaNotKept",
    "TidegateError",
    "UnreachableError",
    "UnreadableProgress",
    "invariant",
]

_STORY_LINES_SHOWN = 8


class ExitCode(IntEnum):
    """How every program of Tidegate ends; numbers from 64 on are those of BSD's `sysexits.h`."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        """Return the number, with its meaning for a supervisor."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.meaning = meaning
        return code

    DONE = 0, "done; of a worker: it was drained"
    FAILURE = 1, "a failure: the error says of what, and whether starting again helps"
    USAGE = (
        2,
        "usage or settings, or what a setting names: useless to repeat before somebody changes it",
    )
    BUG = 70, "a broken invariant, which is a bug (EX_SOFTWARE)"
    TEMPORARY = 75, "something does not answer, and starting again may help (EX_TEMPFAIL)"


class TidegateError(Exception):
    """Root of the tree.

    `message` says what happened, `hint` what to do, `fields` identify the subject (a token, a topic
    partition, a schema id).  Fields never contain secrets, because they are printed.
    """

    retriable: ClassVar[bool] = False
    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(self, message: str, *, hint: str = "", **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def __str__(self) -> str:
        """One line: message, fields, hint."""
        where = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        text = f"{self.message} ({where})" if where else self.message
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Survive pickling: Spark moves exceptions between processes."""
        return (_rebuild, (type(self), self.message, self.hint, self.fields))


def _rebuild(
    kind: type[TidegateError], message: str, hint: str, fields: dict[str, object]
) -> TidegateError:
    error = kind.__new__(kind)
    TidegateError.__init__(error, message, hint=hint, **fields)
    return error


class ConfigError(TidegateError):
    """A setting, or the system that it names, cannot be used; nothing was started."""

    exit_code = ExitCode.USAGE


class UnreachableError(TidegateError):
    """A system that a setting names does not answer."""

    retriable = True
    exit_code = ExitCode.TEMPORARY


class SchemaError(TidegateError):
    """Bytes, a schema or a column type do not match the contract."""


class SchemaNotFound(SchemaError):  # noqa: N818 - named after what was found
    """The registry has answered that it has no schema with this id."""


class SchemaNotKept(SchemaError):  # noqa: N818 - named after what was found
    """The registry dropped a part of a schema that readers need."""

    exit_code = ExitCode.USAGE


class UnreadableProgress(SchemaError):  # noqa: N818 - named after what was found
    """A record of a progress topic that a newer version or another program has written."""

    exit_code = ExitCode.USAGE


class ProducerError(TidegateError):
    """The producer cannot continue."""


class ConsumerError(TidegateError):
    """The consumer cannot continue."""


class InvariantViolation(TidegateError):  # noqa: N818 - a word of its own in the docs
    """Tidegate broke one of its own rules: a bug, not an operating condition.

    `story` holds the last events that concern `fields`, oldest first, if the core that broke the
    rule records them.  It is bounded; the text ends with its last lines.
    """

    exit_code = ExitCode.BUG
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line, followed by the last lines of the story."""
        return "\n  ".join((super().__str__(), *self.story[-_STORY_LINES_SHOWN:]))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Survive pickling with the story."""
        return (_rebuild_with_story, (type(self), *super().__reduce__()[1][1:], self.story))


def _rebuild_with_story(
    kind: type[InvariantViolation],
    message: str,
    hint: str,
    fields: dict[str, object],
    story: tuple[str, ...],
) -> InvariantViolation:
    error = kind.__new__(kind)
    TidegateError.__init__(error, message, hint=hint, **fields)
    error.story = story
    return error


def invariant(condition: object, message: str, **fields: Any) -> None:
    """Raise `InvariantViolation` unless `condition` holds.

    Unlike `assert` it survives `python -O`.
    """
    if not condition:
        raise InvariantViolation(message, **fields)

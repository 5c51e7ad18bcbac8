"""Every error that Tidegate raises on purpose, in one tree.

    TidegateError
    ├── ConfigError             a setting is wrong: the operator mends it           exit 2
    ├── UnreachableError        a broker, registry or Spanner does not answer       exit 2
    ├── SchemaError             bytes or a schema do not fit the contract           exit 1
    ├── ProducerError           the fleet's branch (producer/errors.py)             exit 1
    ├── ConsumerError           the gate's branch (spark_consumer/errors.py)        exit 1
    └── InvariantViolation      Tidegate itself is wrong                            exit 70

An error carries fields and builds its sentence from them; `retriable` stands on the class, and is
all that a retry policy looks at; `hint` tells the operator what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ConfigError",
    "ConsumerError",
    "InvariantViolation",
    "ProducerError",
    "SchemaError",
    "TidegateError",
    "UnreachableError",
    "invariant",
]


class TidegateError(Exception):
    """Root of the tree.

    `message` says what is wrong, `hint` what to do about it, `fields` the coordinates (a token, a
    topic partition, a schema id).  Fields never hold secrets: they are printed.
    """

    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def __str__(self) -> str:
        """One line: the message, the coordinates, the hint."""
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
    """A setting, or what it points at, cannot work; nothing was started."""

    exit_code = 2


class UnreachableError(TidegateError):
    """A system that a setting points at does not answer."""

    retriable = True
    exit_code = 2


class SchemaError(TidegateError):
    """Bytes, a schema or a column type do not fit the contract."""


class ProducerError(TidegateError):
    """The fleet cannot go on."""


class ConsumerError(TidegateError):
    """The gate cannot go on."""


class InvariantViolation(TidegateError):  # noqa: N818 - a word of its own in the docs
    """Tidegate broke one of its own rules: a bug, never an operating condition."""

    exit_code = 70


def invariant(condition: object, message: str, **fields: Any) -> None:
    """Raise `InvariantViolation` unless `condition` holds.

    Unlike `assert` it survives `python -O`.
    """
    if not condition:
        raise InvariantViolation(message, **fields)

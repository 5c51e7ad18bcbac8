"""The form of data topics' names: a text with the placeholders `{prefix}` and `{table}`.

`{prefix}` comes first and a separator follows it, so that the topics of two streams can meet only
where one prefix continues the other.  `{table}` stands there once, so that a topic names its table.
In the producer's setting `{database}` stands for the database's id; it is resolved before anything
else is done with a template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from tidegate.schemas.errors import ConfigError

SETTING = "topic_template"
"""The setting's name, in both programs and in `StreamStarted.filters`."""

TEMPLATE_DEFAULT = "{prefix}.{table}"

SEPARATORS = ".-_"
"""One of these follows the prefix."""

DATABASE = "{database}"
_PREFIX, _TABLE = "{prefix}", "{table}"
_KNOWN = (_PREFIX, DATABASE, _TABLE)
_PART = re.compile(r"\{[^{}]*\}|[^{}]+|[{}]")
_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
_LETTERS_HINT = "A topic's name has letters, digits, '.', '_' and '-'"


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A template without `{database}`; make one with `parse`."""

    middle: str
    """The text between prefix and table."""
    tail: str
    """The text after the table."""

    @classmethod
    def parse(cls, text: str, *, database: str = "") -> Self:
        """Return the template of a setting, with the id of the database in its place.

        Raises ConfigError for a text that is not a template.
        """
        parts = _PART.findall(text)
        for part in parts:
            if part.startswith("{") and part not in _KNOWN:
                raise ConfigError(
                    f"{SETTING}: {part!r} is not one of {', '.join(_KNOWN)}",
                    hint="Placeholders are written in lower case",
                )
            if part not in _KNOWN and not _LITERAL.fullmatch(part):
                raise ConfigError(
                    f"{SETTING}: {part!r} cannot be part of a topic's name", hint=_LETTERS_HINT
                )
        _require_counts(text, parts)
        if DATABASE in parts and not database:
            raise ConfigError(
                f"{SETTING}: {DATABASE} is known to the producer only",
                hint="Write the database's id instead, as in {prefix}.my-database.{table}",
            )
        middle, tail = text.removeprefix(_PREFIX).replace(DATABASE, database).split(_TABLE)
        if not middle.startswith(tuple(SEPARATORS)):
            raise ConfigError(
                f"{SETTING}: {text!r} has no separator after {{prefix}}",
                hint="Write '.', '-' or '_' after it",
            )
        return cls(middle, tail)

    @property
    def text(self) -> str:
        """The template as a setting has it."""
        return f"{_PREFIX}{self.middle}{_TABLE}{self.tail}"


def _require_counts(text: str, parts: list[str]) -> None:
    hint = f"The default is {TEMPLATE_DEFAULT}"
    if parts[:1] != [_PREFIX] or parts.count(_PREFIX) > 1:
        raise ConfigError(
            f"{SETTING}: {text!r} must begin with {{prefix}}, and have it once", hint=hint
        )
    if parts.count(_TABLE) != 1:
        raise ConfigError(
            f"{SETTING}: {text!r} must have {{table}} once, or tables would share a topic",
            hint=hint,
        )
    if parts.count(DATABASE) > 1:
        raise ConfigError(f"{SETTING}: {text!r} has {DATABASE} more than once", hint=hint)

"""ALTER DATABASE: options that are kept and shown; only version_retention_period has an effect."""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported
from spanner_simulator.core.schema.schema_objects import duration_us
from spanner_simulator.errors import Code, SpannerError

_TEXTS = (
    "version_retention_period",
    "default_leader",
    "optimizer_statistics_package",
    "default_sequence_kind",
)
_NUMBERS = ("optimizer_version",)
_MIN_RETENTION = "1h"
_MAX_RETENTION = "7d"


def check_option(words: DdlWords, name: str, value: ddl.OptionValue) -> None:
    """Refuse, in the texts of the dialect, an option that is not known or of another kind."""
    known = name.lower()
    if known == "default_time_zone":
        raise unsupported("database option default_time_zone")
    is_text = isinstance(value, str)
    is_right = value is None or is_text == (known in _TEXTS)
    if words.dialect == "POSTGRESQL":
        if known not in (*_TEXTS, *_NUMBERS):
            raise _refused(f"Invalid Alter Database Option: spanner.{name}.")
        if not is_right:
            raise _refused("Incorrect datatype specified for option.")
        return
    if known not in (*_TEXTS, *_NUMBERS):
        words.reject(f"Option: {name} is unknown.")
    if not is_right:
        allowed = "option values are strings and NULL"
        if known == "version_retention_period":
            allowed = "values are non-empty strings only"
        elif known in _NUMBERS:
            allowed = "option values are integers and NULL"
        words.reject(f"Unexpected value for option: {name}. Supported {allowed}.")
    if value == "":
        words.reject("Invalid string literal: ''")


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def alter_database(catalogue: Catalogue, statement: ddl.AlterDatabase) -> None:
    """Set options, or reset those that are None."""
    for name, value in statement.options:
        if value is None:
            catalogue.options.pop(name, None)
            continue
        if name == "version_retention_period":
            _check_retention(str(value))
        catalogue.options[name] = value
    catalogue.database_name = statement.database


def _check_retention(value: str) -> None:
    if not duration_us(_MIN_RETENTION) <= duration_us(value) <= duration_us(_MAX_RETENTION):
        raise _refused(
            f"Invalid version_retention_period: {value}. The version retention period must be a "
            f"value in the range [{_MIN_RETENTION}, {_MAX_RETENTION}]."
        )

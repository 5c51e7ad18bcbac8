"""The rows and columns of a merged table, where the change stream leaves something out.

A column that the stream does not watch is left out by name; if the mirror has it already, the
settings must accept that its values go stale.  If a stream leaves out whole changes (its
`excludes`), no mirror can equal the table, so it is written only if the settings accept those
options.  Each manifest names the omissions.  The same is true for a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.schemas.change_schema import ELSEWHERE, UNWATCHED_COLUMNS
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.core.sink_names import HISTORY, MIRROR
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, row_columns
from tidegate.spark_consumer.errors import FilteredMirror
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.sql import quoted

_COLUMN = "column "

_log = structlog.get_logger(__name__)


class MirrorScope:
    """Refuses mirrors that cannot equal their tables; logs once what each leaves out."""

    def __init__(self, accepted: Iterable[str] = (), *, sink: str = MIRROR) -> None:
        """Take the accepted omissions: options of the change stream, and `UNWATCHED_COLUMNS`.

        `sink` is what errors and log lines call the table: the mirror, or the history.
        """
        self._accepted = frozenset(accepted)
        self._name = sink
        self._checked: dict[str, tuple[str, ...]] = {}

    def require(self, schemas: TopicSchemas, existing: Callable[[], Iterable[str]]) -> None:
        """Raise FilteredMirror for a mirror that cannot be written; cheap when nothing is new.

        `existing` returns the columns that the mirror's table has, none if it does not exist.
        """
        omitted = left_out(schemas)
        if self._checked.get(schemas.table, ()) == omitted:
            return
        changes = [option for option in schemas.excludes if option != ELSEWHERE]
        refused = sorted(set(changes) - self._accepted)
        if refused:
            raise FilteredMirror(
                f"the change stream leaves changes out: the {self._name} would differ from its "
                "table",
                hint=(
                    f'Set mirror_accepts = "{",".join(changes)}" to write it all the same, or '
                    "read a change stream without these options from its start, into a new output"
                ),
                table=schemas.table,
                options=refused,
            )
        columns = {name.lower() for name in existing()}
        stale = sorted(name for name in schemas.unwatched if name.lower() in columns)
        if stale and UNWATCHED_COLUMNS not in self._accepted:
            raise FilteredMirror(
                f"the change stream no longer watches columns that the {self._name} has",
                hint=(
                    f"Start with a new output and checkpoint, whose {self._name} "
                    "leaves them out, or set "
                    f'mirror_accepts = "{UNWATCHED_COLUMNS}": they keep the values that they have'
                ),
                table=schemas.table,
                columns=stale,
            )
        log = _log.bind(table=schemas.table, left_out=list(omitted))
        if self._name == HISTORY:
            log.warning("the history leaves out")
        else:
            log.warning("the mirror leaves out")
        self._checked[schemas.table] = omitted


def left_out(schemas: TopicSchemas) -> tuple[str, ...]:
    """Return the omissions of a mirror: `column <name>`, and options of the change stream."""
    changes = (option for option in schemas.excludes if option != ELSEWHERE)
    return (*(f"{_COLUMN}{name}" for name in sorted(schemas.unwatched)), *changes)


def leaves_changes_out(omitted: Iterable[str]) -> bool:
    """Whether whole changes are among what `left_out` returned, and not columns only."""
    return not all(text.startswith(_COLUMN) for text in omitted)


def mirror_columns(schemas: TopicSchemas) -> tuple[str, ...]:
    """Return the columns of a table's mirror, in ordinal order."""
    columns = row_columns(schemas.reader_schema)
    return tuple(name for name in columns if name not in schemas.unwatched)


def mirror_schema(table: AnyTable) -> StructType:
    """Return the mirror's columns and their types; raises SchemaError for another schema."""
    row = table.schema["new_values"].dataType
    if not isinstance(row, StructType):
        raise SchemaError("new_values is not a record", type=row.simpleString())
    wanted = set(mirror_columns(table.schemas))
    return StructType([field for field in row if field.name in wanted])


def key_names(schemas: TopicSchemas) -> list[str]:
    """Return the key's columns, in primary key order."""
    return [field["name"] for field in schemas.key_schema["fields"]]


def key_struct(keys: Sequence[str]) -> Column:
    """Return a table's key as a decoded change has it."""
    return F.struct(*(F.col(quoted(key)) for key in keys)).alias("key")

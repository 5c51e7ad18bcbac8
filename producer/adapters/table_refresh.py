"""`driver.translation.TableRefresh`: the catalogue asked again, the new version registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.core.table_evolution import evolve
from tidegate.producer.errors import IncompatibleChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.adapters.change_encoder import TableRegistrar
    from tidegate.producer.adapters.spanner_catalogue import SpannerCatalogue
    from tidegate.producer.core.translate import TableEncoding
    from tidegate.producer.spanner_records import DataChangeRecord

__all__ = ["TableRefreshFromCatalogue"]


class TableRefreshFromCatalogue:
    """Looks a record's table up and registers what it has become.

    A table that a stream FOR ALL begins to watch needs its topic: `prepare_topic` is called with
    its encoding before its first record is translated.  Without it such a table is refused.
    """

    def __init__(
        self,
        catalogue: SpannerCatalogue,
        registrar: TableRegistrar,
        prepare_topic: Callable[[TableEncoding], None] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._registrar = registrar
        self._prepare_topic = prepare_topic

    def __call__(self, record: DataChangeRecord, known: TableEncoding | None) -> TableEncoding:
        """Return the table's new encoding; raises what catalogue and registry raise.

        Raises IncompatibleChange if the topic's schemas cannot follow.
        """
        if known is None and self._prepare_topic is None:
            raise IncompatibleChange(
                "the change stream began to watch another table",
                hint="Begin a new stream under another prefix, or watch named tables only",
                table=record.table_name,
            )
        table = evolve(
            None if known is None else known.table,
            self._catalogue.table(record.table_name),
            record.columns,
            table=record.table_name,
        )
        encoding = self._registrar.register(table)
        if known is None and self._prepare_topic is not None:
            self._prepare_topic(encoding)
        return encoding

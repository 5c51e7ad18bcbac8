"""Which streams the gate can read at all, by the record that opened them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.output_form import Envelope, OutputForm
from tidegate.schemas.progress import StreamStarted
from tidegate.spark_consumer.errors import FlatStream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.lineage.frontier import ProgressRow

__all__ = ["require_readable"]


def require_readable(rows: Iterable[ProgressRow]) -> None:
    """Raise FlatStream if one of the progress rows opens a stream whose values are flat.

    It is the first record of the root's slot, so nothing has been released before it is read.
    """
    for row in rows:
        body = row.record.body
        if not isinstance(body, StreamStarted):
            continue
        if OutputForm.of(body.filters).envelope is Envelope.FLAT:
            message = "the stream's values are flat, and the Spark consumer cannot read them"
            hint = (
                'Run it on a stream with envelope = "tidegate", under another prefix; a flat '
                "stream is for other programs"
            )
            raise FlatStream(message, hint=hint, stream=body.stream)

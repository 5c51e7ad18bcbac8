"""Which streams the gate can read at all, by the record that opened them."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.output_form import Envelope, recorded_form
from tidegate.schemas.progress import StreamStarted
from tidegate.spark_consumer.errors import UnreadableEnvelope


def require_readable(rows: Iterable[ProgressRow]) -> None:
    """Raise UnreadableEnvelope if one of the progress rows opens a stream of another envelope.

    One that this version does not know is another one, too.  The row is the first record of the
    root's slot, so nothing has been released before it is read.
    """
    for row in rows:
        body = row.record.body
        if not isinstance(body, StreamStarted):
            continue
        envelope = recorded_form(body.filters)["envelope"]
        if envelope != Envelope.TIDEGATE:
            raise UnreadableEnvelope(
                (
                    f"the stream's values have the envelope '{envelope}', and the Spark consumer "
                    "cannot read them"
                ),
                hint=(
                    'Run it on a stream with envelope = "tidegate", under another '
                    "prefix; this one is "
                    "for other programs"
                ),
                stream=body.stream,
                envelope=envelope,
            )

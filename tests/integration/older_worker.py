"""`python -m tests.integration.older_worker run`: a producer worker as before the header `origin`.

The token of the stream partition is in each value; messages of data topics have two headers.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from confluent_kafka import Producer

from tests.simulation.older_programs import OlderTranslator
from tidegate.producer.cli import main, worker_parts
from tidegate.producer.kafka import publisher
from tidegate.schemas.topics import HEADER_ORIGIN


class _OlderProducer(Producer):
    def produce(self, *message: Any, headers: Any = (), **options: Any) -> None:
        kept = [(name, value) for name, value in headers if name != HEADER_ORIGIN]
        super().produce(*message, headers=kept, **options)


if __name__ == "__main__":
    with (
        patch.object(worker_parts, "Translator", OlderTranslator),
        patch.object(publisher, "Producer", _OlderProducer),
    ):
        main()

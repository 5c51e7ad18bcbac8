"""What workers of older programs write, where they meet those of today in one fleet."""

from __future__ import annotations

from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.avro_fields import write_text
from tidegate.producer.translation.translator import Translator

_NO_TOKEN = write_text("")


class OlderTranslator(Translator):
    """Puts the token into the value, and names the stream partition in no header."""

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        translated = super().translate(record, token=token)
        return translated._replace(
            messages=tuple(_older(message, token) for message in translated.messages)
        )


def _older(message: ChangeMessage, token: str) -> ChangeMessage:
    """The token is the last field of a value."""
    assert message.value.endswith(_NO_TOKEN)
    value = message.value.removesuffix(_NO_TOKEN) + write_text(token)
    return message._replace(value=value, origin=b"")

"""What a change takes in Kafka, by the length of its stream partition's token.

    .venv/bin/python -m benchmarks.producer.sizes

Bytes for each change: the value; the whole record, with key and headers; and its part of a batch
under LZ4, which is what brokers keep: of 100 records of one stream partition, and of 10 records of
10 of them.  Batches are compressed here, without the few bytes of Kafka's own fields.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.producer.responses import STREAM, TABLE, Case, responses
from benchmarks.producer.stages import table_encoding
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.stream import SpannerResponse
from tidegate.producer.translation.translator import Translator

if TYPE_CHECKING:
    from tidegate.producer.messages import ChangeMessage

__all__ = ["main"]

_CHANGES = 2_000
_SMALL, _LARGE = 10, 100
_TOKEN_CHARACTERS = (40, 100, 150)


def main() -> None:
    """Print a row for each length of a token."""
    print("| token | value | record | LZ4, 100 of one | LZ4, 10 of ten |")
    print("| --- | --- | --- | --- | --- |")
    for characters in _TOKEN_CHARACTERS:
        ten = [_messages(_token(characters, number)) for number in range(_SMALL)]
        mixed = [ten[number % _SMALL][number] for number in range(_CHANGES)]
        figures = (
            sum(len(message.value) for message in ten[0]),
            sum(len(_record(message)) for message in ten[0]),
            _compressed(ten[0], _LARGE),
            _compressed(mixed, _SMALL),
        )
        cells = " | ".join(f"{figure / _CHANGES:.0f}" for figure in figures)
        print(f"| {characters} characters | {cells} |")


def _token(characters: int, number: int) -> str:
    """Return a token in which a compressor finds nothing that repeats."""
    digests = (sha256(b"%d/%d" % (number, part)).hexdigest() for part in range(characters))
    return "".join(digests)[:characters]


def _messages(token: str) -> list[ChangeMessage]:
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    decoder = ResponseDecoder(ColumnTypesCache())
    return [
        message
        for response in responses(Case(1, 1), _CHANGES)
        for record in SpannerResponse(response, decoder).decode()[0]
        for message in translator.translate(record, token=token).messages  # type: ignore[arg-type]  # all are changes
    ]


def _record(message: ChangeMessage) -> bytes:
    _, key, value, *contents = message
    names = (b"order", b"mod", b"origin")
    headers = [part for pair in zip(names, contents, strict=False) for part in pair]
    return b"".join((key, value, *headers))


def _compressed(messages: list[ChangeMessage], size: int) -> int:
    batches = (messages[start : start + size] for start in range(0, len(messages), size))
    return sum(
        len(pa.compress(b"".join(map(_record, batch)), codec="lz4", asbytes=True))
        for batch in batches
    )


if __name__ == "__main__":
    main()

"""Decodes framed progress records, each with the schema that it was written with.

One progress topic can hold several versions: a fleet is upgraded worker by worker, and a reader may
be older than both.  The id in the frame names the writer's schema, and Avro resolves it to the
schema of this version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import fastavro

from tidegate.schemas.errors import SchemaError, UnreadableProgress
from tidegate.schemas.progress import PROGRESS_VERSION, ProgressRecord
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, decode_record
from tidegate.schemas.wire_format import unframe

_Writer: TypeAlias = tuple[int, dict[str, Any] | None]


_HINT = "Only Tidegate's workers may write to it: find the other writer, then reset the stream"


class ProgressDecoder:
    """Decodes the values of a progress topic; looks up each schema id once; for one thread.

    `schema_of` returns the schema of an id; it is not called for `own_ids`, the ids of the newest
    version's schema.  `has_answer` says whether it returns at once, and starts a look-up if not.
    """

    def __init__(
        self,
        schema_of: Callable[[int], Mapping[str, Any]],
        *,
        own_ids: Iterable[int] = (),
        has_answer: Callable[[int], bool] = lambda _schema_id: True,
    ) -> None:
        self._schema_of = schema_of
        self._has_answer = has_answer
        self._writers: dict[int, _Writer] = dict.fromkeys(own_ids, (PROGRESS_VERSION, None))

    def is_ready(self, value: bytes) -> bool:
        """Whether `decode` returns or raises without waiting for a schema; never blocks."""
        try:
            schema_id, _ = unframe(value)
        except SchemaError:
            return True
        return schema_id in self._writers or self._has_answer(schema_id)

    def decode(self, value: bytes) -> ProgressRecord:
        """Return the record in a value.

        Raises SchemaError for bytes that are not a framed progress record, and the errors of
        `schema_of` for an id that cannot be resolved.
        """
        schema_id, body = unframe(value)
        try:
            version, schema = self._writer(schema_id)
            return decode_record(body, schema, version=version)
        except SchemaError as error:
            fields: dict[str, Any] = {**error.fields, "schema_id": schema_id}
            raise SchemaError(error.message, hint=error.hint, **fields) from error

    def decode_at(self, value: bytes, **place: object) -> ProgressRecord:
        """Return the record in a value.

        Raises UnreadableProgress, which names the place, where `decode` raises SchemaError.
        """
        try:
            return self.decode(value)
        except SchemaError as error:
            message = f"the progress topic holds a record that cannot be read: {error.message}"
            hint = error.hint or _HINT
            raise UnreadableProgress(message, hint=hint, **{**place, **error.fields}) from error

    def _writer(self, schema_id: int) -> _Writer:
        """Return the version of an id's schema; for a schema of no version, also the schema."""
        if schema_id not in self._writers:
            schema = self._schema_of(schema_id)
            versions = [
                version
                for version, known_schema in RECORD_SCHEMAS.items()
                if known_schema == schema
            ]
            self._writers[schema_id] = (
                (versions[0], None) if versions else (PROGRESS_VERSION, _parsed(schema))
            )
        return self._writers[schema_id]


def _parsed(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", fastavro.parse_schema(dict(schema)))
    except Exception as error:  # fastavro's parser raises many kinds of errors
        raise SchemaError(
            "the schema of a progress record is not an Avro record", cause=type(error).__name__
        ) from error

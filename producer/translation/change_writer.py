"""Writes the changes of one table: Kafka keys and values, in Avro, with Confluent's framing.

The rules are in `docs/protocol.md`, 3.2 and 3.3: key columns are in both rows; the captured columns
are always named, because a reader may resolve the value to a schema with more columns than the
writer knew; an absent value is never written as NULL. A flat value (3.8) is one row, followed by
the facts about its change.

Nearly everything about a change follows from its *shape*: the kind of its record, and the columns
that its three JSON documents hold.  For each shape one function is compiled, such as this one for
an UPDATE of `Score` in a table with the key `Id`:

    def write(keys, new, old, before, number, after):
        key_0 = field_0(keys['Id'])
        return KEY_0 + key_0, b''.join((
            VALUE_0, key_0, VALUE_1, field_6(new['Score']), VALUE_2, key_0, …, before, number, after
        ))

KEY_0 and VALUE_0 are bytes that never vary: the frame, the kind, the nulls of absent columns, the
names of captured ones.  `before` and `after` are the source's fields around the mod number, which
varies with each change of a record; those after it repeat in most records of a stream partition.
The compiled text contains only column names of a schema or record, as literals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.producer import accelerator as accelerated
from tidegate.producer.accelerator import accelerator
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import DataChangeRecord, Mod, UnreadableValues
from tidegate.producer.translation.avro_fields import (
    END_OF_ARRAY,
    NULL,
    PRESENT,
    FieldWriter,
    field_writer,
    usual_form,
    write_boolean,
    write_long,
    write_text,
)
from tidegate.producer.translation.keys import key_field_writer
from tidegate.schemas.change_schema import FLAT_FIELDS, FOREIGN_HINT, row_fields
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.wire_format import frame_prefix

_MOD_TYPES = ["INSERT", "UPDATE", "DELETE"]
_FIELDS = ["mod_type", "new_values", "old_values", "new_columns", "old_columns", "source"]
_DOCUMENTS = ["keys", "new", "old"]
_SOURCE_FIELDS = [
    "commit_timestamp",
    "server_transaction_id",
    "record_sequence",
    "mod_number",
    "is_last_record_in_transaction_in_partition",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
    "value_capture_type",
    "change_stream",
    "partition_token",
]
"""The fields in the order in which they are written (`docs/protocol.md`, 3.2)."""
_SOURCES_MAX = 1024
_NO_TOKEN = write_text("")
_FLAT_KINDS = {
    "INSERT": write_text("c") + write_text("false"),
    "UPDATE": write_text("u") + write_text("false"),
    "DELETE": write_text("d") + write_text("true"),
}
"""`__op` and `__deleted`."""
_SHAPES_MAX = 256
"""Number of compiled functions of one table: updates may touch any set of columns, and compiling a
shape takes as long as writing a hundred changes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A column's value: the name of its document, of the column, and its writer."""

    document: str
    column: str
    write: FieldWriter
    form: str
    """The usual form of its values (`usual_form`)."""


Pieces: TypeAlias = list[bytes | Piece]


class ChangeWriter:
    """Writes mods under one table's registered schemas; thread-safe."""

    def __init__(
        self,
        table: TableSchema,
        *,
        key: RegisteredSchema,
        value: RegisteredSchema,
        timestamps: TimestampForm = TimestampForm.MICROS,
    ) -> None:
        """Raise SchemaError for a value schema that does not have the contract's form."""
        self._require_form(value.schema)
        self._table = table
        self._key_frame = frame_prefix(key.schema_id)
        self._value_frame = frame_prefix(value.schema_id)
        self._row = list(row_fields(value.schema))
        self._fields = {
            column.name: field_writer(column.type, timestamps) for column in table.columns
        }
        self._forms = {column.name: usual_form(column.type, timestamps) for column in table.columns}
        self._keys = [column.name for column in table.key_columns]
        self._key_fields = {
            column.name: key_field_writer(column.type, timestamps) for column in table.key_columns
        }
        self._values = self._fields
        """The writers of a row's columns, which other envelopes carry in another form."""
        self._value_forms = self._forms
        self._accelerator = accelerator()
        self._compiled: dict[tuple[object, ...], Callable[..., tuple[bytes, bytes]]] = {}

    def write(
        self, mod_type: str, mod: Mod, *, before: bytes, number: bytes, after: bytes
    ) -> tuple[bytes, bytes]:
        """Return a change's key and value.

        `before` and `after` are the source's fields before and after the mod number.  Raises
        TableChanged for an unknown column, and SchemaError for a value that does not fit or a key
        that is not the primary key.
        """
        keys, new, old = mod
        try:
            shape = (mod_type, *keys, None, *new, None, *old)
            write = self._compiled.get(shape)
            if write is not None:
                return write(keys, new, old, before, number, after)
            key, value = self._pieces(mod_type, mod)
            if len(self._compiled) < _SHAPES_MAX:
                write = self._compiled[shape] = self._compile(key, value)
                return write(keys, new, old, before, number, after)
            documents = {"keys": keys, "new": new, "old": old}
            return (
                _written(key, documents),
                b"".join((_written(value, documents), before, number, after)),
            )
        except SchemaError as error:
            raise self._located(error, mod) from error

    def key(self, keys: Mapping[str, Any]) -> bytes:
        """Return the key of a change, as `write` does, whatever its values.

        Raises SchemaError for a value that does not fit or a key that is not the primary key.
        """
        self._require_primary_key(keys)
        fields = [self._key_fields[name](keys[name]) for name in self._keys]
        return b"".join((self._key_frame, *fields))

    # ------------------------------------------------------------ shapes

    def _pieces(self, mod_type: str, mod: Mod) -> tuple[Pieces, Pieces]:
        """Return the pieces of a change of this shape, except its source."""
        self._require_primary_key(mod.keys)
        return _joined(self._key_pieces()), _joined(self._value_pieces(mod_type, mod))

    def _key_pieces(self) -> Pieces:
        return [self._key_frame, *(self._key_piece(name) for name in self._keys)]

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the pieces of the value of a change of this shape."""
        new_row: Pieces = [NULL]
        old_row: Pieces = [NULL]
        new_names = old_names = NULL
        if mod_type != "DELETE":
            new_row, new_names = self._row_pieces("new", mod.new_values)
        # Without old values an UPDATE's old row would be nulls and a key that is also in the new
        # one.
        if mod_type == "DELETE" or (mod_type == "UPDATE" and mod.old_values):
            old_row, old_names = self._row_pieces("old", mod.old_values)
        kind = write_long(_MOD_TYPES.index(mod_type))
        return [self._value_frame, kind, *new_row, *old_row, new_names, old_names]

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields around the row are the contract's."""
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        if list(fields) == _FIELDS:
            symbols = fields["mod_type"]["symbols"]
            source = [field["name"] for field in fields["source"]["fields"]]
            if symbols == _MOD_TYPES and source == _SOURCE_FIELDS:
                return
        raise other_form(schema)

    def _row_pieces(self, document: str, captured: Mapping[str, Any]) -> tuple[Pieces, bytes]:
        """Return a row with the captured and key columns, and the list of their names."""
        for name in captured:
            if name not in self._fields and name not in self._row:
                raise self._unknown(name)
        pieces: Pieces = [PRESENT]
        names = []
        for name in self._row:
            if name in captured or name in self._keys:
                pieces.append(self._row_piece(document if name in captured else "keys", name))
                names.append(name)
            else:
                pieces.append(NULL)
        return pieces, _name_list(names, self._row)

    def _key_piece(self, column: str) -> Piece:
        """Return a column's value in the key; in a row with equal bytes, the same piece."""
        return Piece("keys", column, self._key_fields[column], self._forms[column])

    def _row_piece(self, document: str, column: str) -> Piece:
        """Return a column's value in a row; a column of unknown type can only be null."""
        if column not in self._fields:
            return Piece(document, column, self._only_null(column), "")
        return self._value_piece(document, column)

    def _value_piece(self, document: str, column: str) -> Piece:
        return Piece(document, column, self._values[column], self._value_forms.get(column, ""))

    def _only_null(self, column: str) -> FieldWriter:
        def write(value: Any) -> bytes:
            if value is not None:
                raise self._unknown(column)
            return NULL

        return write

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the registered value schema, whose nulls can be written."""
        return self._row

    def _unknown(self, column: str) -> TableChanged:
        message = "a change holds an unknown column"
        return TableChanged(message, table=self._table.name, column=column)

    def _compile(
        self, key: Sequence[bytes | Piece], value: Sequence[bytes | Piece]
    ) -> Callable[..., tuple[bytes, bytes]]:
        if self._accelerator is None:
            return _compile(key, value)
        return self._accelerator.shape_writer([*map(_described, key)], [*map(_described, value)])

    def _require_primary_key(self, keys: Mapping[str, Any]) -> None:
        for name in self._keys:
            if name not in keys:
                raise SchemaError("a change without a column of its primary key", column=name)
        if len(keys) != len(self._keys):
            raise SchemaError(
                "a change's key has columns that are not in the primary key",
                columns=sorted(keys.keys() - self._keys),
            )

    def _located(self, error: SchemaError, mod: Mod) -> SchemaError:
        """Return the error with the column whose value does not fit."""
        for document in mod:
            if isinstance(document, UnreadableValues):
                continue
            writers = self._key_fields if document is mod.keys else self._values
            for name, value in document.items():
                write = writers.get(name)
                if write is None:
                    continue  # a column that does not exist cannot have an unfit value
                try:
                    write(value)
                except SchemaError as cause:
                    fields: dict[str, Any] = {**cause.fields, "column": name}
                    return SchemaError(cause.message, hint=cause.hint, **fields)
        return error


class FlatWriter(ChangeWriter):
    """Writes mods under one table's registered schemas, the value flat; thread-safe."""

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the row after the change (before a DELETE), and the facts about it."""
        if mod_type == "DELETE":
            row, names = self._row_pieces("old", mod.old_values)
        else:
            row, names = self._row_pieces("new", mod.new_values)
        # Neither the row nor the list of names may be null here, so no byte marks them as present.
        row, names = row[1:], names.removeprefix(PRESENT)
        return [self._value_frame, *row, _FLAT_KINDS[mod_type], names]

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields after the columns are the contract's."""
        if schema["fields"][-len(FLAT_FIELDS) :] != list(FLAT_FIELDS):
            raise other_form(schema)


class SourceWriter:
    """Writes the fields of a record other than its values, in Avro; thread-safe.

    The token is left out: the message's header names the stream partition, in fewer bytes than any
    other part of the message would.
    """

    def __init__(self, change_stream: str) -> None:
        self._change_stream = change_stream
        self._encoded: dict[tuple[object, ...], bytes] = {}

    def before_mod_number(self, record: DataChangeRecord, commit_timestamp_us: int) -> bytes:
        """Return the fields before the mod number; raises SchemaError if one does not fit."""
        return (
            write_long(commit_timestamp_us)
            + write_text(record.server_transaction_id)
            + write_text(record.record_sequence)
        )

    def after_mod_number(self, record: DataChangeRecord, *, is_flat: bool = False) -> bytes:
        """Return the fields after the mod number; raises SchemaError if one does not fit.

        A flat value contains neither the change stream nor the token.
        """
        repeated = (
            record.is_last_record_in_transaction_in_partition,
            record.number_of_records_in_transaction,
            record.number_of_partitions_in_transaction,
            record.transaction_tag,
            record.is_system_transaction,
            record.value_capture_type,
            is_flat,
        )
        encoded = self._encoded.get(repeated)
        if encoded is None:
            if len(self._encoded) >= _SOURCES_MAX:
                self._encoded.clear()
            encoded = self._encoded[repeated] = self._write(record, is_flat=is_flat)
        return encoded

    def _write(self, record: DataChangeRecord, *, is_flat: bool) -> bytes:
        where = b"" if is_flat else write_text(self._change_stream) + _NO_TOKEN
        return b"".join(
            (
                write_boolean(record.is_last_record_in_transaction_in_partition),
                write_long(record.number_of_records_in_transaction),
                write_long(record.number_of_partitions_in_transaction),
                write_text(record.transaction_tag),
                write_boolean(record.is_system_transaction),
                write_text(record.value_capture_type),
                where,
            )
        )


def _name_list(names: Sequence[str], row: Sequence[str]) -> bytes:  # noqa: ARG001 - for mutants
    """Write the names of captured columns, even if they are all columns of the row."""
    return b"".join((PRESENT, write_long(len(names)), *map(write_text, names), END_OF_ARRAY))


def _joined(pieces: Sequence[bytes | Piece]) -> Pieces:
    """Return the pieces with neighbouring bytes joined."""
    joined: Pieces = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, bytes) and isinstance(last, bytes):
            joined[-1] = last + piece
        else:
            joined.append(piece)
    return joined


def _written(pieces: Sequence[bytes | Piece], documents: Mapping[str, Any]) -> bytes:
    """Join the pieces without compiling them."""
    return b"".join(
        [
            piece
            if isinstance(piece, bytes)
            else piece.write(documents[piece.document][piece.column])
            for piece in pieces
        ]
    )


def _described(piece: bytes | Piece) -> accelerated.Piece:
    """Return a piece in the accelerator's form."""
    if isinstance(piece, bytes):
        return "fixed", 0, piece, None
    return piece.form, _DOCUMENTS.index(piece.document), piece.column, piece.write


def _compile(
    key: Sequence[bytes | Piece], value: Sequence[bytes | Piece]
) -> Callable[..., tuple[bytes, bytes]]:
    """Return the function of a shape; the module's docstring shows its text."""
    names: dict[str, Any] = {"join": b"".join}
    variables: dict[Piece, str] = {}
    statements = []

    def term(piece: bytes | Piece) -> str:
        """Return the expression of a piece; a key column's is computed once."""
        if piece in variables:
            return variables[piece]
        name = f"part_{len(names)}"
        if isinstance(piece, bytes):
            names[name] = piece
            return name
        names[name] = piece.write
        call = f"{name}({piece.document}[{piece.column!r}])"
        if piece.document != "keys":
            return call
        variables[piece] = f"key_{len(variables)}"
        statements.append(f"    {variables[piece]} = {call}")
        return variables[piece]

    key_terms = ", ".join(map(term, key))
    value_terms = ", ".join(map(term, value))
    text = "\n".join(
        [
            "def write(keys, new, old, before, number, after):",
            *statements,
            f"    return join(({key_terms},)), join(({value_terms}, before, number, after))",
        ]
    )
    exec(compile(text, "<change writer>", "exec"), names)  # noqa: S102 - the text is made here
    write: Callable[..., tuple[bytes, bytes]] = names["write"]
    return write


def other_form(schema: Mapping[str, Any]) -> SchemaError:
    """Return the error about a registered value schema that this contract did not make."""
    return SchemaError(
        "a registered value schema is not that of a change (docs/protocol.md, 3.2 and 3.8)",
        hint=FOREIGN_HINT,
        schema=f"{schema.get('namespace', '')}.{schema.get('name', '')}",
    )

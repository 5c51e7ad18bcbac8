"""Types and result metadata between the core and the API.

Metadata is cached by its columns, because small results would otherwise spend most of their time on
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import get_args

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.values import Annotation, TypeCode, ValueType
from spanner_simulator.errors import invalid_argument, unsupported
from spanner_simulator.server.messages import Message


@lru_cache(maxsize=1024)
def type_message(value_type: ValueType) -> Message:
    """A google.spanner.v1.Type; shared, so it must not be changed."""
    message = spanner.Type.pb()(code=getattr(spanner.TypeCode, value_type.code))
    if value_type.element is not None:
        message.array_element_type.CopyFrom(type_message(value_type.element))
    for name, kind in value_type.fields:
        message.struct_type.fields.add(name=name).type_.CopyFrom(type_message(kind))
    if value_type.code == "STRUCT":
        message.struct_type.SetInParent()
    if value_type.annotation is not None:
        message.type_annotation = getattr(spanner.TypeAnnotationCode, value_type.annotation)
    if value_type.proto_name is not None:
        message.proto_type_fqn = value_type.proto_name
    return message


_CODES: dict[int, TypeCode] = {
    int(getattr(spanner.TypeCode, code)): code
    for code in get_args(TypeCode)
    if code not in ("ARRAY", "STRUCT")
}


def value_type_of(message: Message, *, depth: int = 0) -> ValueType | None:
    """The type in a message; None without a declaration.

    UNIMPLEMENTED, with the code, for an unknown type code.
    """
    code = message.code
    if code == spanner.TypeCode.TYPE_CODE_UNSPECIFIED:
        return None
    if code == spanner.TypeCode.ARRAY:
        if depth > 0:
            raise invalid_argument("Arrays of arrays are not supported.")
        element = value_type_of(message.array_element_type, depth=depth + 1)
        if element is None:
            raise invalid_argument("No value provided for required field: Type.array_element_type")
        return ValueType("ARRAY", element)
    if code == spanner.TypeCode.STRUCT:
        return _struct_type(message)
    if code not in _CODES:
        name = spanner.Type.pb().DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number
        text = name[code].name if code in name else str(code)
        raise unsupported(f"parameters of type {text}")
    annotation = _annotation(message.type_annotation)
    return ValueType(_CODES[code], annotation=annotation, proto_name=message.proto_type_fqn or None)


def _struct_type(message: Message) -> ValueType:
    fields: list[tuple[str, ValueType]] = []
    for field in message.struct_type.fields:
        field_type = value_type_of(field.type_)
        if field_type is None:
            raise invalid_argument("No value provided for required field: Field.type")
        fields.append((field.name, field_type))
    return ValueType("STRUCT", fields=tuple(fields))


def _annotation(code: int) -> Annotation | None:
    match code:
        case spanner.TypeAnnotationCode.PG_NUMERIC:
            return "PG_NUMERIC"
        case spanner.TypeAnnotationCode.PG_JSONB:
            return "PG_JSONB"
        case spanner.TypeAnnotationCode.PG_OID:
            return "PG_OID"
        case spanner.TypeAnnotationCode.TYPE_ANNOTATION_CODE_UNSPECIFIED:
            return None
        case _:
            raise invalid_argument(f"Unknown type annotation: {code}")


def metadata_bytes(
    columns: Sequence[tuple[str, ValueType]],
    transaction: Message | None = None,
    undeclared: Sequence[tuple[str, ValueType]] = (),
) -> bytes:
    """A serialised ResultSetMetadata."""
    described = _described(tuple(columns), tuple(undeclared))
    if transaction is None:
        return described
    begun = spanner.ResultSetMetadata.pb()()
    begun.transaction.CopyFrom(transaction)
    serialised: bytes = begun.SerializeToString()
    # Fields of a message may be appended.
    return described + serialised


@lru_cache(maxsize=1024)
def _described(
    columns: tuple[tuple[str, ValueType], ...], undeclared: tuple[tuple[str, ValueType], ...]
) -> bytes:
    metadata = spanner.ResultSetMetadata.pb()()
    # Present even without fields, because clients read it.
    metadata.row_type.SetInParent()
    for name, value_type in columns:
        metadata.row_type.fields.add(name=name).type_.CopyFrom(type_message(value_type))
    for name, value_type in undeclared:
        parameters = metadata.undeclared_parameters
        parameters.fields.add(name=name).type_.CopyFrom(type_message(value_type))
    serialised: bytes = metadata.SerializeToString()
    return serialised

"""Messages and enums of a FileDescriptorSet, as types of columns.

Spanner's UpdateDatabaseDdlRequest.proto_descriptors contains one.  Only names and the numbers of
enums are used: the simulator stores messages without parsing them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from spanner_simulator.core.schema.analysis import ProtoFiles
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import invalid_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FileDescriptorProto,
    )


def read_descriptors(serialised: bytes) -> ProtoFiles:
    """All types and files of a set; INVALID_ARGUMENT for other bytes."""
    try:
        read = FileDescriptorSet.FromString(serialised)
    except DecodeError as error:
        raise invalid_argument("Could not parse contents of proto_descriptor_file") from error
    return ProtoFiles(
        dict(typed for file in read.file for typed in _types_of(file)),
        {file.name: FileDescriptorSet(file=[file]).SerializeToString() for file in read.file},
    )


def _types_of(file: FileDescriptorProto) -> Iterator[tuple[str, ValueType]]:
    scope = f"{file.package}." if file.package else ""
    for enum in file.enum_type:
        yield _enum(scope, enum)
    for message in file.message_type:
        yield from _message(scope, message)


def _message(scope: str, message: DescriptorProto) -> Iterator[tuple[str, ValueType]]:
    name = scope + message.name
    yield name, ValueType("PROTO", proto_name=name)
    for enum in message.enum_type:
        yield _enum(f"{name}.", enum)
    for nested in message.nested_type:
        yield from _message(f"{name}.", nested)


def _enum(scope: str, enum: EnumDescriptorProto) -> tuple[str, ValueType]:
    name = scope + enum.name
    members = tuple((member.name, member.number) for member in enum.value)
    return name, ValueType("ENUM", proto_name=name, members=members)

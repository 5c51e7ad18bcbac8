"""The port through which the SQL inside a schema statement is checked before it is accepted.

Defaults, generated columns and checks are SQL, which is a layer above the core.  A catalogue may be
given an analyser, which is bound to it and sees its state at the time of each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import ValueType


@dataclass(frozen=True, slots=True)
class ProtoFiles:
    """A google.protobuf.FileDescriptorSet: its types by full name, and its files by theirs.

    Each file is a serialised set of its own, so that sets are put together by appending them.
    """

    types: Mapping[str, ValueType]
    files: Mapping[str, bytes]


class Analysis(Protocol):
    """Knows SQL and protocol buffers; raises `SpannerError` for invalid input."""

    def mismatch(self, expression: str, *, table: Table, result: ValueType) -> str | None:
        """None if an expression over a row of the table converts to `result`, else its type."""
        ...

    def proto_files(self, descriptors: bytes) -> ProtoFiles:
        """The types and files of a serialised google.protobuf.FileDescriptorSet."""
        ...

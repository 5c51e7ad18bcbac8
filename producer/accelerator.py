"""The compiled steps of the producer, if the distribution `tidegate-accelerator` is installed.

It is optional, and does the same as the Python code of its callers: it handles usual input only,
and leaves all other input, including every error, to that code.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, cast

SWITCH = "TIDEGATE_ACCELERATOR"
"""The environment variable that turns it off, with the value `off`."""

_MODULE = "tidegate_accelerator"
_INTERFACE = 3
"""The interface version that the module must have; another version takes other arguments."""

Piece: TypeAlias = tuple[str, int, bytes | str, Callable[[Any], bytes] | None]
"""A piece of a change: ("fixed", 0, bytes, None), or a column's value: its type's usual form, the
place of its document, its name, and the writer of any form."""


class Accelerator(Protocol):
    """The compiled module; its docstrings describe the arguments of its functions."""

    def records(  # noqa: PLR0917 - C's functions take arguments by position
        self,
        message: bytes,
        kinds: bytes,
        data: bytes,
        mod: bytes,
        loads: Callable[[bytes], Any],
        mod_type: type[tuple[Any, ...]],
        /,
    ) -> list[Any] | None:
        """Return the records of a response's rows; None for an unusual response."""

    def coordinates(
        self, commit_us: int, transaction: str, sequence: str, first: int, count: int, /
    ) -> tuple[list[bytes], bytes, list[bytes]] | None:
        """Return the order keys of a record's changes, and the parts of their source in Avro."""

    def shape_writer(
        self, key: list[Piece], value: list[Piece], /
    ) -> Callable[..., tuple[bytes, bytes]]:
        """Return the writer of the changes of one shape."""


def accelerator() -> Accelerator | None:
    """Return the compiled module if it is used."""
    return _ACCELERATOR


def describe_accelerator() -> str:
    """Return in a few words whether the compiled module is used, and why not."""
    return _STATE


def _load(
    environ: Mapping[str, str] = os.environ,
) -> tuple[Accelerator | None, Literal["used", "turned off", "not installed", "another version"]]:
    if environ.get(SWITCH, "").lower() == "off":
        return None, "turned off"
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        return None, "not installed"
    if getattr(module, "INTERFACE", None) != _INTERFACE:
        return None, "another version"
    return cast("Accelerator", module), "used"


_ACCELERATOR, _STATE = _load()

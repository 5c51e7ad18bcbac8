"""Errors of a reader of the progress topic, and errors that stopped a stream partition.

A heartbeat holds the second kind as text: the class of the error, then its message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.schemas.errors import ConsumerError, ExitCode, TidegateError


class ProtocolError(ConsumerError):
    """Records of the progress topic break the protocol; continuing could lose changes."""

    exit_code = ExitCode.USAGE


class MixedEpochs(ProtocolError):  # noqa: N818 - named after what was found
    """The progress topic holds two epochs: the stream was reset under the same prefix."""


_EXPIRED = "PositionExpired"
_EXPIRED_FIELD = "lost_from="

_TEXT = re.compile(r"([A-Z][A-Za-z0-9]*): (.*)", re.DOTALL)


class StopReason(NamedTuple):
    """An error that stopped a stream partition."""

    kind: str | None
    """The error's class; None in heartbeats of versions that wrote its text only."""
    text: str
    """What happened, to what, and what to do."""


def stop_text(error: TidegateError) -> str:
    """Return what a heartbeat says of an error: `read_stop` takes it apart."""
    return f"{type(error).__name__}: {error}"


def read_stop(stopped: str) -> StopReason:
    """Return what a heartbeat's `stopped` says."""
    found = _TEXT.fullmatch(stopped)
    return StopReason(None, stopped) if found is None else StopReason(found[1], found[2])


def is_expired(stopped: str | None) -> bool:
    """Whether a stream partition that is stopped for this reason has an expired position.

    Other errors may name anything, such as a file whose path looks like a field of this one.
    """
    if stopped is None:
        return False
    kind, text = read_stop(stopped)
    return _EXPIRED_FIELD in text if kind is None else kind == _EXPIRED

"""Errors of a reader of the progress topic, and errors that stopped a stream partition.

A heartbeat holds the latter as text: the class of the error, then its message.
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
    """The error's class; None in heartbeats of versions that wrote only its text."""
    text: str
    """What happened, to what, and how to fix it."""


def stop_text(error: TidegateError) -> str:
    """Return the text of an error for a heartbeat; `read_stop` parses it."""
    return f"{type(error).__name__}: {error}"


def read_stop(stopped: str) -> StopReason:
    """Parse the `stopped` of a heartbeat."""
    match = _TEXT.fullmatch(stopped)
    return StopReason(None, stopped) if match is None else StopReason(match[1], match[2])


def is_expired(stopped: str | None) -> bool:
    """Whether a stream partition is stopped because its position has expired.

    `stopped` is the heartbeat's text.  Only the class of the error counts, because the message of
    another error may contain anything.
    """
    if stopped is None:
        return False
    kind, text = read_stop(stopped)
    return _EXPIRED_FIELD in text if kind is None else kind == _EXPIRED

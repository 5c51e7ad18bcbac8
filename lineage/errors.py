"""What a reader of the progress topic refuses."""

from __future__ import annotations

from tidegate.schemas.errors import ConsumerError, ExitCode

__all__ = ["MixedEpochs", "ProtocolError"]


class ProtocolError(ConsumerError):
    """Records of the progress topic break the protocol; continuing could lose changes."""

    exit_code = ExitCode.USAGE


class MixedEpochs(ProtocolError):  # noqa: N818 - named after what was found
    """The progress topic holds two epochs: the stream was reset under the same prefix."""

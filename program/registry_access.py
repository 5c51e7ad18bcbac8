"""Which calls a schema registry has accepted, and for how long it has rejected others.

A token may be revoked early, and a load balancer may answer 401 or 403 by itself: what was accepted
before is tried again for some minutes.  What was never accepted is a fault of the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.program.rejections import Rejections

if TYPE_CHECKING:
    from confluent_kafka.schema_registry.error import SchemaRegistryError


REJECTED = frozenset({401, 403})
_FORBIDDEN = 403
_NO_ERROR_CODE = -1
"""Confluent's client has it for an answer that is not the registry's JSON."""


class RegistryAccess:
    """Accepted and rejected calls of one client; thread-safe.

    Reads and writes are judged apart: a registry may let everybody read.  A 403 that the registry
    itself gives concerns a subject, any other rejection concerns all of them.
    """

    def __init__(self) -> None:
        """Start without a call."""
        self._rejections: dict[tuple[str, bool], Rejections] = {}

    def accept(self, subject: str = "", *, writes: bool = False) -> None:
        """Record that a call was answered."""
        for place in {"", subject}:
            self._of(place, writes).accept()

    def may_pass(
        self, error: SchemaRegistryError, subject: str = "", *, writes: bool = False
    ) -> bool:
        """Record a call that was rejected; return whether to try it again later."""
        is_own = error.http_status_code == _FORBIDDEN and not is_foreign(error)
        return not self._of(subject if is_own else "", writes).reject()

    def _of(self, subject: str, writes: bool) -> Rejections:  # noqa: FBT001 - a part of the key
        return self._rejections.setdefault((subject, writes), Rejections())


def is_foreign(error: SchemaRegistryError) -> bool:
    """Whether an answer has no error code of a registry: a proxy may have given it."""
    return error.error_code in (None, _NO_ERROR_CODE)

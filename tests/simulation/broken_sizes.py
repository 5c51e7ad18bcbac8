"""Workers that are broken on purpose: messages too large for their topic, vectors over chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.lineage import slot_view
from tidegate.producer.core.undeliverable import UndeliverableRecords, Verdict
from tidegate.producer.errors import MessageTooLarge
from tidegate.producer.translation.limited import LimitedTranslator
from tidegate.schemas import progress_chunks

__all__ = ["BROKEN_SIZES"]

_translate = LimitedTranslator.translate


def _leave_out_what_is_too_large(self: Any, record: Any, *, token: str) -> Any:
    try:
        return _translate(self, record, token=token)
    except MessageTooLarge:
        whole = self._translator.translate(record, token=token)
        bytes_max = self._limits.bytes_max
        kept = tuple(m for m in whole.messages if m.size_bytes <= bytes_max(m.topic))
        return whole._replace(messages=kept)


def _translate_whatever_the_size(self: Any, record: Any, *, token: str) -> Any:
    """Let the broker find out."""
    return self._translator.translate(record, token=token)


class _Known:
    """Limits that are never read again."""

    def __init__(self, limits: Any) -> None:
        self.bytes_max = limits.bytes_max

    def refresh(self) -> None:
        pass


def _translate_by_what_was_known(self: Any, record: Any, *, token: str) -> Any:
    if not isinstance(self._limits, _Known):
        self._limits = _Known(self._limits)
    return _translate(self, record, token=token)


def _try_again(self: Any, failure: Any) -> Verdict:
    return Verdict()


_stop_after = UndeliverableRecords.refused


def _stop_without_its_name(self: Any, failure: Any) -> Verdict:
    """Stop with the first record that comes to hand."""
    nameless = None if failure is None else replace(failure, commit_timestamp_us=1)
    return _stop_after(self, nameless)


_joined = slot_view._joined


def _joined_with_the_first_vector(before: Any, body: Any) -> Any:
    return replace(_joined(before, body), vector=before.vector)


_join = progress_chunks._join


def _join_with_the_first_vector(chunks: Any) -> Any:
    whole: Any = _join(chunks)
    return replace(whole, vector=chunks[0].vector) if hasattr(whole, "vector") else whole


BROKEN_SIZES = (
    Mutant(
        "a change that is too large left out",
        "nothing_lost",
        ((LimitedTranslator, "translate", _leave_out_what_is_too_large),),
    ),
    Mutant(
        "a message that is too large tried without end",
        "undeliverable",
        ((UndeliverableRecords, "refused", _try_again),),
    ),
    Mutant(
        "sizes compared by the broker only",
        "undeliverable",
        ((LimitedTranslator, "translate", _translate_whatever_the_size),),
    ),
    Mutant(
        "a limit that was raised not read",
        "undeliverable",
        ((LimitedTranslator, "translate", _translate_by_what_was_known),),
    ),
    Mutant(
        "a stop that names another record",
        "undeliverable",
        ((UndeliverableRecords, "refused", _stop_without_its_name),),
    ),
    Mutant(
        "a vector of which the gate reads the first chunk",
        "watermark",
        ((slot_view, "_joined", _joined_with_the_first_vector),),
    ),
    Mutant(
        "a vector of which the next owner reads the first chunk",
        "vectors",
        ((progress_chunks, "_join", _join_with_the_first_vector),),
    ),
)

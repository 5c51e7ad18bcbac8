"""Parts that are broken on purpose: what an answer of Spanner or of a registry means."""

from __future__ import annotations

from typing import Any

import grpc

from tests.mutants.mutant import UnitMutant
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.errors import PositionExpired, QueryError
from tidegate.producer.spanner import channel
from tidegate.producer.spanner.byte_progress import ByteProgress
from tidegate.producer.spanner.call import Call
from tidegate.producer.spanner.connection import Connection
from tidegate.producer.spanner.stream import SpannerQuery
from tidegate.program import registry_http
from tidegate.program.registry_access import RegistryAccess
from tidegate.program.rejections import Rejections
from tidegate.schemas.progress_decoder import ProgressDecoder

__all__ = ["BROKEN_ANSWERS"]

_SPANNER = "tests/unit/producer/spanner"
_KAFKA = "tests/unit/producer/kafka"
_REGISTRY = "tests/unit/tidegate/program/test_registry_http.py"


def _lost_in_one_wording(error: grpc.RpcError) -> bool:
    return "Session not found" in str(error.details())


def _any_rejection_is_final(_self: Rejections) -> bool:
    return True


async def _expired_whatever_the_token(
    _self: SpannerQuery, expired: PositionExpired, _at: Any
) -> QueryError:
    return expired


def _usable_until_it_fails(self: Connection) -> bool:
    return self._error is None and not self._is_draining


def _no_call_is_behind(_self: Call, _now: float) -> None:
    pass


async def _read_without_a_sign(self: PartitionReader, response: Any) -> None:
    records, unfinished = response.decode()
    await self._hand_over(list(records), unfinished=min(unfinished, self._held))


_fail_query = StreamPartition.fail_query


def _fail_query_as_any(self: StreamPartition, now_us: int, *, asked_us: int = 0) -> None:
    _fail_query(self, now_us)


def _only_servers_fail_for_a_time(error: Any) -> bool:
    return bool(error.http_status_code >= 500)


BROKEN_ANSWERS = (
    UnitMutant(
        "any byte of a message that reads as life",
        (
            f"{_SPANNER}/test_byte_progress.py::test_bytes_that_come_more_slowly_than_the_least_rate_are_silence",
            f"{_SPANNER}/test_call.py::test_a_message_that_comes_byte_by_byte_is_silence",
        ),
        ((ByteProgress, "is_coming", lambda *_: True),),
    ),
    UnitMutant(
        "a query that is repeated before the service wants it",
        (
            "tests/unit/producer/core/test_queries.py::test_a_query_that_may_work_later_is_repeated_and_counted",
        ),
        ((StreamPartition, "fail_query", _fail_query_as_any),),
    ),
    UnitMutant(
        "a registry's rejection that is final at once",
        (f"{_REGISTRY}::test_a_rejection_after_accepted_calls_passes_for_some_minutes",),
        ((RegistryAccess, "may_pass", lambda *_, **__: False),),
    ),
    UnitMutant(
        "a record that is decoded before its schema is known",
        (
            f"{_KAFKA}/test_membership.py::TestRecovery::test_a_slot_is_read_again_from_a_record_whose_schema_is_not_known_yet",
            f"{_KAFKA}/test_progress_follower.py::test_records_wait_for_a_schema_that_is_not_known_yet",
            f"{_KAFKA}/test_root_slot.py::test_records_wait_for_a_schema_that_is_not_known_yet",
        ),
        ((ProgressDecoder, "is_ready", lambda *_: True),),
    ),
    UnitMutant(
        "a lost session known by one wording",
        (f"{_SPANNER}/test_stream.py::test_a_lost_session_is_created_again",),
        ((channel, "is_lost_session", _lost_in_one_wording),),
    ),
    UnitMutant(
        "a rejected call that is final at once",
        (
            f"{_SPANNER}/test_stream.py::test_a_rejection_after_accepted_calls_passes_for_some_minutes",
        ),
        ((Rejections, "reject", _any_rejection_is_final),),
    ),
    UnitMutant(
        "a stream that was created again read as expired",
        (f"{_SPANNER}/test_stream.py::test_a_stream_that_was_created_again_refuses_the_token",),
        ((SpannerQuery, "_refusal_of_token", _expired_whatever_the_token),),
    ),
    UnitMutant(
        "retries on a connection that is silent",
        (
            f"{_SPANNER}/test_connection.py::test_a_connection_that_was_silent_when_a_call_was_given_up_gets_no_new_ones",
        ),
        ((Connection, "is_usable", property(_usable_until_it_fails)),),
    ),
    UnitMutant(
        "a message in parts that reads as silence",
        (
            "tests/unit/producer/driver/test_reader.py::test_parts_of_a_message_are_no_silence_and_hold_what_was_taken",
        ),
        ((PartitionReader, "_read", _read_without_a_sign),),
    ),
    UnitMutant(
        "waiting behind others that reads as silence",
        (f"{_SPANNER}/test_call.py::test_a_call_waits_behind_others_for_a_time_and_says_so",),
        ((Call, "yield_to_others", _no_call_is_behind),),
    ),
    UnitMutant(
        "a busy registry whose answer is final",
        (f"{_REGISTRY}::test_an_answer_that_may_pass_is_unreachable_for_every_call",),
        ((registry_http, "_may_pass", _only_servers_fail_for_a_time),),
    ),
)

"""Parts that are broken on purpose: who opens a stream, and what proves that it is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING

from tests.mutants.mutant import UnitMutant
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.core import effects as do
from tidegate.producer.core import stream_identity, stream_partition
from tidegate.producer.core.added_tables import AddedTables
from tidegate.producer.core.fleet_progress import FleetProgress
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_start_search import StreamStartSearch
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topic_monitor import TopicMonitor
from tidegate.producer.records import ChildPartitionsRecord, PartitionStartRecord
from tidegate.producer.translation import table_registrar
from tidegate.program import from_beginning
from tidegate.program.kafka_errors import AT_END
from tidegate.spark_consumer.core.batch_run import BatchRun

__all__ = ["BROKEN_OPENINGS"]

_OPENING = "tests/unit/producer/core/test_stream_opening.py"
_WORKER = "tests/unit/producer/core/test_worker.py::TestOwnership"


def _lacks_in_spite_of_records(self: Any) -> bool:
    recovery = self._recovery
    return self.has_caught_up and recovery is not None and recovery.committed_offset is None


def _lacks_in_spite_of_a_fence(self: Any) -> bool:
    recovery = self._recovery
    return self.has_caught_up and recovery is not None and recovery.is_empty


def _any_search_decides(self: StreamStartSearch, search_id: int) -> bool:
    return True


_deliver = TransactionCycle.deliver


def _open_without_a_fence(self: Any, *args: Any) -> list[do.Effect]:
    effects = _deliver(self, *args)
    if self.open is None or self.open.start is None:
        return effects
    return [effect for effect in effects if not isinstance(effect, do.SendOffsets)]


_make_client = from_beginning.make_client


def _read_uncommitted(kind: Any, config: Mapping[str, Any]) -> Any:
    return _make_client(kind, {**config, "isolation.level": "read_uncommitted"})


_differences = stream_identity._differences


def _differences_but_the_form(recorded: Any, current: Mapping[str, object]) -> list[str]:
    compared = {name: value for name, value in current.items() if name != "timestamps"}
    return _differences(recorded, compared)


def _forms_are_alike(registered: Any, own: Any) -> bool:
    return False


def _begin_again(kind: Any, config: Mapping[str, Any]) -> Any:
    return _make_client(kind, {**config, "auto.offset.reset": "earliest"})


def _leave_it_to_the_client(*_: Any) -> int:
    return OFFSET_BEGINNING


def _read_backwards(self: OperatorCommands, event: Any) -> None:
    pass


def _add_what_comes(self: FleetProgress, slot: int, offset: int, record: Any) -> None:
    self._reached[slot] = offset + 1
    if record is not None:
        self._rows.append(ProgressRow(slot, offset, record))


def _note_no_offset(self: RootSlotReader, message: Any) -> None:
    pass


def _take_any_error_for_an_end(self: RootSlotReader, error: Any) -> bool:
    self._is_at_end = self._is_at_end or error.code() == AT_END
    return True


def _await_nothing(self: OperatorCommands, number: int) -> None:
    pass


def _nothing_due(_self: Any, _topics: Any) -> list[Any]:
    return []


def _topics_are_the_same(_self: BatchRun) -> list[Any]:
    return []


def _any_filter_is_the_same(_recorded: Any, _filters: Any) -> list[str]:
    return []


_draft = Slot.draft


def _draft_by_its_own_vector(self: Slot, *args: Any, given: Any, **options: Any) -> Any:
    return _draft(self, *args, **options)


_observed = TopicMonitor._observed


def _observed_wholly_or_not(self: TopicMonitor, *args: Any) -> Any:
    found = _observed(self, *args)
    return None if self._failed else found


def _names_without_changes(item: Any) -> bool:
    """Take a change of the initial query for none."""
    return isinstance(item, ChildPartitionsRecord | PartitionStartRecord)


def _takes_all_items(_item: Any) -> bool:
    """Let the initial query move on as any other does."""
    return True


BROKEN_OPENINGS = (
    UnitMutant(
        "changes in the answer to the initial query left out",
        (f"{_OPENING}::test_what_no_stream_partition_would_return_again_is_an_error",),
        ((stream_partition, "names_partitions", _names_without_changes),),
    ),
    UnitMutant(
        "an initial query that goes on behind a heartbeat",
        (f"{_OPENING}::test_what_moves_other_stream_partitions_does_not_move_the_start",),
        ((stream_partition, "names_partitions", _takes_all_items),),
    ),
    UnitMutant(
        "a re-created topic that only slots notice which have written to it",
        (
            "tests/unit/producer/core/test_topic_watch.py::TestWorker::test_a_slot_that_has_not_written_goes_by_what_others_of_the_worker_have",
        ),
        ((Slot, "draft", _draft_by_its_own_vector),),
    ),
    UnitMutant(
        "no topic described while one of them has an error",
        (
            "tests/unit/producer/kafka/test_topic_monitor.py::test_an_error_about_one_topic_leaves_out_that_one_and_makes_a_new_client",
        ),
        ((TopicMonitor, "_observed", _observed_wholly_or_not),),
    ),
    UnitMutant(
        "a stored plan obeyed whatever its topics are now",
        (
            "tests/unit/spark_consumer/core/test_batch_run.py::test_a_stored_plan_is_not_obeyed_once_a_topic_is_another_one",
        ),
        ((BatchRun, "_describe", _topics_are_the_same),),
    ),
    UnitMutant(
        "a fleet whose workers leave out different things",
        ("tests/unit/producer/core/test_stream_identity.py::test_another_filter_is_named",),
        ((stream_identity, "_filter_differences", _any_filter_is_the_same),),
    ),
    UnitMutant(
        "a stream opened in a slot that holds records",
        (f"{_WORKER}::test_nobody_opens_a_stream_in_a_slot_that_holds_records",),
        ((Slot, "lacks_stream_start", property(_lacks_in_spite_of_records)),),
    ),
    UnitMutant(
        "a stream opened in a slot that has a fence",
        (
            "tests/unit/producer/core/test_slot.py::TestRecovery::test_only_a_slot_read_from_its_beginning_can_lack_the_stream_start",
        ),
        ((Slot, "lacks_stream_start", property(_lacks_in_spite_of_a_fence)),),
    ),
    UnitMutant(
        "a stream opened without a fence",
        (
            "tests/unit/producer/core/test_stream_opening_properties.py::test_one_opens_the_stream_and_the_other_takes_it_over",
        ),
        ((TransactionCycle, "deliver", _open_without_a_fence),),
    ),
    UnitMutant(
        "a search for the start that decides however early it began",
        (f"{_WORKER}::test_a_search_that_ended_before_the_stream_started_proves_nothing",),
        ((StreamStartSearch, "is_decided_by", _any_search_decides),),
    ),
    UnitMutant(
        "a search for the start that reads what is not committed",
        (
            "tests/unit/tidegate/program/test_from_beginning.py::test_it_reads_committed_records_from_the_beginning_and_joins_nothing",
        ),
        ((from_beginning, "make_client", _read_uncommitted),),
    ),
    UnitMutant(
        "a reader beside the group that begins again by itself",
        (
            "tests/unit/tidegate/program/test_from_beginning.py::test_an_offset_that_is_gone_is_an_error_and_never_a_new_beginning",
        ),
        ((from_beginning, "make_client", _begin_again),),
    ),
    UnitMutant(
        "a reader that leaves it to the client where a topic begins",
        (
            "tests/unit/tidegate/program/test_from_beginning.py::test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again",
        ),
        ((from_beginning, "_beginning", _leave_it_to_the_client),),
    ),
    UnitMutant(
        "the root's slot read backwards",
        (
            "tests/unit/producer/core/test_operator_commands.py::TestReadAgain::test_reading_backwards_is_an_error",
            "tests/unit/producer/core/test_operator_commands.py::TestReadAgain::test_a_drain_for_a_predecessor_is_not_obeyed_by_its_successor",
        ),
        ((OperatorCommands, "advance", _read_backwards),),
    ),
    UnitMutant(
        "the root's slot read backwards by its client",
        (
            "tests/unit/producer/kafka/test_root_slot.py::TestLoss::test_a_step_backwards_is_believed_by_nobody",
        ),
        ((RootSlotReader, "_advance", _note_no_offset),),
    ),
    UnitMutant(
        "an error in the root's slot passed over in silence",
        (
            "tests/unit/producer/kafka/test_root_slot.py::TestTables::test_an_error_that_lasts_before_the_first_end_is_not_swallowed",
        ),
        ((RootSlotReader, "_note", _take_any_error_for_an_end),),
    ),
    UnitMutant(
        "the fleet's slots read backwards",
        (
            "tests/unit/producer/core/test_fleet_progress.py::test_reading_a_slot_backwards_is_an_error",
        ),
        ((FleetProgress, "add", _add_what_comes),),
    ),
    UnitMutant(
        "the recorded form of timestamps not compared",
        (
            "tests/unit/producer/core/test_stream_identity.py::test_another_form_of_timestamps_is_named_as_the_setting_has_it",
            "tests/unit/producer/commands/test_environment.py::test_another_form_of_timestamps_is_refused_before_anything_is_written",
        ),
        ((stream_identity, "_differences", _differences_but_the_form),),
    ),
    UnitMutant(
        "the form of timestamps in a key schema not compared",
        (
            "tests/unit/producer/translation/test_table_registrar_properties.py::test_the_other_form_of_timestamps_is_refused_by_the_settings_name",
        ),
        ((table_registrar, "differ_in_timestamps", _forms_are_alike),),
    ),
    UnitMutant(
        "a paused slot read on by an owner that has not read of the pause",
        (
            "tests/unit/producer/core/test_operator_commands.py::TestPause::test_who_takes_a_paused_slot_over_waits_for_the_pause",
        ),
        ((OperatorCommands, "await_control", _await_nothing),),
    ),
    UnitMutant(
        "a redrive that records no later table",
        (
            "tests/unit/producer/core/test_redrive.py::TestDone::test_a_later_table_that_no_worker_could_find_is_recorded_with_its_first_change",
        ),
        ((AddedTables, "due", _nothing_due),),
    ),
)

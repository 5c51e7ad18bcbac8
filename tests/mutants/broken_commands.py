"""Commands that are permitted where they may not be, and steps between states that none makes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.mutants.mutant import UnitMutant
from tidegate.lineage.fleet_status import FleetStatus
from tidegate.lineage.slot_tokens import SlotTokens
from tidegate.producer.commands import (
    backfill,
    command_rules,
    control,
    state_since,
    stream_transitions,
)
from tidegate.producer.commands.command_rules import COMMAND_RULES, Command
from tidegate.producer.commands.stream_state import StreamState
from tidegate.producer.commands.stream_transitions import STREAM_TRANSITIONS, StreamChange

if TYPE_CHECKING:
    from tidegate.producer.commands.command_rules import CommandRule

__all__ = ["BROKEN_COMMANDS"]

_RULES = "tests/unit/producer/commands/test_command_rules.py"
_BACKFILL = "tests/unit/producer/commands/test_backfill.py"
_CONTROL = "tests/unit/producer/commands/test_control.py"
_SINCE = "tests/unit/producer/commands/test_state_since.py"
_TOKENS = "tests/unit/tidegate/lineage/test_slot_tokens.py"
_STEPS = "tests/unit/producer/commands/test_stream_transitions.py"

_require_command = control.require_command
_asked = count()


def _rules(command: Command, **changes: Any) -> dict[Command, CommandRule]:
    return {**COMMAND_RULES, command: replace(COMMAND_RULES[command], **changes)}


def _before_and_never_after(command: Command, records: Any, members: Any) -> StreamState | None:
    """Look at the state when a command begins, and not where no other one can commit."""
    return _require_command(command, records, members) if next(_asked) % 2 == 0 else None


_note = SlotTokens._note


def _note_through_gaps(self: SlotTokens, minute: int) -> None:
    self._heard = minute
    _note(self, minute)


def _without(state: StreamState, change: StreamChange) -> dict[Any, Any]:
    return {key: found for key, found in STREAM_TRANSITIONS.items() if key != (state, change)}


BROKEN_COMMANDS = (
    UnitMutant(
        "a state that holds through minutes without a heartbeat",
        (f"{_TOKENS}::TestTimes::test_a_minute_without_a_heartbeat_begins_it_again",),
        ((SlotTokens, "_note", _note_through_gaps),),
    ),
    UnitMutant(
        "expired changes that count from another error",
        (f"{_SINCE}::test_a_failure_counts_from_the_first_error_of_its_kind",),
        ((state_since, "is_expired", lambda _reason: True),),
    ),
    UnitMutant(
        "a stream resumed that no operator has paused",
        (f"{_RULES}::test_only_what_an_operator_has_paused_is_resumed",),
        ((command_rules, "COMMAND_RULES", _rules(Command.RESUME, needs_pause=False)),),
    ),
    UnitMutant(
        "a backfill of a stream that is not read",
        (f"{_RULES}::test_a_failed_stream_takes_up_a_backfill_while_it_is_read",),
        ((command_rules, "COMMAND_RULES", _rules(Command.BACKFILL, needs_readers=False)),),
    ),
    UnitMutant(
        "a stream paused of which changes have expired",
        (f"{_RULES}::test_a_command_is_permitted_in_these_states_and_refused_in_all_others",),
        (
            (
                command_rules,
                "COMMAND_RULES",
                _rules(Command.PAUSE, states=COMMAND_RULES[Command.DRAIN].states),
            ),
        ),
    ),
    UnitMutant(
        "a command that goes by the state before another one",
        (f"{_CONTROL}::test_a_command_that_another_one_overtakes_is_refused",),
        ((control, "require_command", _before_and_never_after),),
    ),
    UnitMutant(
        "a request for a backfill that overwrites a run which it has not read",
        (
            f"{_BACKFILL}::test_a_newer_run_of_another_command_is_not_overwritten",
            f"{_BACKFILL}::test_two_commands_do_not_start_runs_of_one_table_or_of_one_number",
            f"{_BACKFILL}::test_a_run_that_was_ended_before_it_was_taken_up_is_not_asked_for_again",
        ),
        ((backfill, "_require_unchanged", lambda _newest, _before: None),),
    ),
    UnitMutant(
        "a stream paused before every slot is",
        (f"{_STEPS}::test_each_change_in_each_state_leads_where_the_table_says",),
        (
            (
                FleetStatus,
                "is_paused",
                property(lambda self: self.is_to_pause and any(o.is_paused for o in self.slots)),
            ),
        ),
    ),
    UnitMutant(
        "a table of states that lacks a step",
        (
            f"{_STEPS}::test_each_change_in_each_state_leads_where_the_table_says",
            f"{_STEPS}::test_each_state_is_met_and_only_a_reset_leads_out_of_the_end",
        ),
        (
            (
                stream_transitions,
                "STREAM_TRANSITIONS",
                _without(StreamState.ENDED, StreamChange.RESET),
            ),
        ),
    ),
    UnitMutant(
        "a table of states with a step that nothing makes",
        (f"{_STEPS}::test_each_change_in_each_state_leads_where_the_table_says",),
        (
            (
                stream_transitions,
                "STREAM_TRANSITIONS",
                {
                    **STREAM_TRANSITIONS,
                    (StreamState.PAUSED, StreamChange.PAUSE): frozenset({StreamState.DRAINING}),
                },
            ),
        ),
    ),
)

"""The search: every order in which the actions of a scenario can happen.

Ways that lead to the same state are walked on from once; a violation is reported with the way that
led to it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.simulation.exhaustive.fleet import Fleet, Found, State, checked
from tests.simulation.exhaustive.gate import Gates, Picture
from tests.simulation.exhaustive.script import Scenario, Script
from tests.simulation.exhaustive.stage import LOCAL_ACTIONS, WORKERS, Action, Stage
from tests.simulation.process import silenced

STATES_MAX = 2_000_000  # a scenario that is not small, or actions that undo each other without end

_END_CHECKERS = ("single_writer", "nothing_twice", "key_order", "gaps", "completeness", "origins")
_NOBODY = -1


@dataclass(slots=True)
class Outcome:
    """What a search has seen."""

    name: str
    states: int = 0
    steps: int = 0
    merged: int = 0
    ends: int = 0
    deepest: int = 0
    ways: int = 0  # interleavings of the fleet's actions that the search stands for
    pictures: int = 0
    executed: int = 0
    """Steps that were carried out; the others are known from the parts that they touch."""
    batches: int = 0
    seconds: float = 0.0  # of one core
    found: Found = field(default_factory=dict)
    trace: tuple[Action, ...] = ()

    def line(self) -> str:
        verdict = "no violation" if not self.found else f"VIOLATED: {', '.join(self.found)}"
        return (
            f"{self.name:<28} {self.states:>7} states {self.merged:>7} merged {self.ends:>5} ends"
            f" {self.deepest:>3} deep {self.ways:>9.1e} ways {self.pictures:>5} pictures"
            f" {self.batches:>6} batches {self.seconds:>6.1f} s  {verdict}"
        )


class _Search:
    def __init__(self, scenario: Scenario, *, remembers: bool) -> None:
        self.scenario = scenario
        self.script = Script.of(scenario)
        self.outcome = Outcome(scenario.name)
        self._fleet = Fleet(self.script, remembers=remembers)
        self._numbers: dict[tuple[State, int], int] = {}
        self._came: list[tuple[int, Action]] = []
        self._following: list[list[int]] = []
        self._shown_by: list[int] = []
        self._ends: set[int] = set()
        self._picture_of: dict[int, int] = {}
        self._picture_numbers: dict[int, int] = {}
        self._pictures: list[Picture] = []

    def run(self) -> Outcome:
        began = time.process_time()
        outcome = self.outcome
        self._walk()
        if not outcome.found:
            self._count_ways()
            self._read()
        outcome.states, outcome.ends = len(self._numbers), len(self._ends)
        outcome.pictures = len(self._pictures)
        outcome.executed = self._fleet.executed
        outcome.seconds = time.process_time() - began
        return outcome

    # ------------------------------------------------------------ the fleet

    def _walk(self) -> None:
        outcome, fleet = self.outcome, self._fleet
        first = fleet.first(), _NOBODY
        stack = [(first, *self._entered(first, (-1, ("begin", ""))))]
        while stack and not outcome.found:
            if len(self._numbers) > STATES_MAX:
                raise AssertionError(f"{self.scenario.name}: more than {STATES_MAX} states")
            outcome.deepest = max(outcome.deepest, len(stack))
            (state, _), number, actions = stack[-1]
            if not actions:
                stack.pop()
                continue
            action = actions.pop()
            after, found = fleet.step(state, action)
            place = after, self._whose_turn(after, action)
            outcome.steps += 1
            if found:
                self._report(found, number, action)
            known = self._numbers.get(place)
            if known is not None:
                outcome.merged += 1
                self._following[number].append(known)
                continue
            entered = self._entered(place, (number, action))
            self._following[number].append(entered[0])
            stack.append((place, *entered))

    def _whose_turn(self, after: State, action: Action) -> int:
        """Return who must go on: a read is put off until its worker does something with it.

        No other participant can tell when it was, and what happens to its worker meanwhile
        forgets it or leaves it as it is.
        """
        if action[0] not in LOCAL_ACTIONS:
            return _NOBODY
        which = WORKERS.index(action[1])
        return which if self._fleet.alone(after, which) else _NOBODY

    def _entered(
        self, place: tuple[State, int], came: tuple[int, Action]
    ) -> tuple[int, list[Action]]:
        number = self._numbers[place] = len(self._numbers)
        state, turn = place
        self._came.append(came)
        self._following.append([])
        self._shown_by.append(self._picture(state[0]))
        if turn != _NOBODY:
            return number, self._fleet.alone(state, turn)
        actions = self._fleet.ordinary(state)
        if not actions:
            self._ends.add(number)
            history = Stage(self.script, self._fleet.ground(state[0]), {}).history()
            self._report(checked(history, _END_CHECKERS), number, None)
        return number, [*self._fleet.faults(state), *actions]

    def _picture(self, ground: int) -> int:
        known = self._picture_of.get(ground)
        if known is None:
            shown = Picture(self._fleet.ground(ground).shown())
            key = shown.key(self._fleet.names)
            known = self._picture_numbers.setdefault(key, len(self._pictures))
            if known == len(self._pictures):
                self._pictures.append(shown)
            self._picture_of[ground] = known
        return known

    def _report(self, found: Found, number: int, action: Action | None) -> None:
        if not found or self.outcome.found:
            return
        trace = [] if action is None else [action]
        while number > 0:
            number, done = self._came[number]
            trace.append(done)
        self.outcome.found, self.outcome.trace = found, tuple(reversed(trace))

    def _count_ways(self) -> None:
        """Count the ways from the beginning to an end; no way comes back to where it was."""
        ways: dict[int, int] = {}
        under_way: set[int] = set()
        stack = [0]
        while stack:
            number = stack[-1]
            missing = [one for one in self._following[number] if one not in ways]
            if missing:
                under_way.add(number)
                if under_way & set(missing):
                    raise AssertionError("a way comes back to a state: actions repeat without end")
                stack += missing[:1]
                continue
            stack.pop()
            under_way.discard(number)
            ways[number] = (number in self._ends) + sum(ways[o] for o in self._following[number])
        self.outcome.ways = ways[0]

    # ------------------------------------------------------------ the gate

    def _read(self) -> None:
        following: list[set[int]] = [set() for _ in self._pictures]
        for number, others in enumerate(self._following):
            picture = self._shown_by[number]
            following[picture].update(
                self._shown_by[one] for one in others if self._shown_by[one] != picture
            )
        gates = Gates(self.script)
        ends = {self._shown_by[number]: number for number in self._ends}
        for picture, found in gates.search(self._pictures, following, ends, self.scenario.batches):
            number = ends.get(picture, self._shown_by.index(picture))
            self._report(found, number, None)
            break
        self.outcome.batches = gates.batches


def explore(scenario: Scenario, *, remembers: bool = True) -> Outcome:
    """Search a scenario to its end, or to the first violation.

    With `remembers`, an action is carried out only once for the parts that it touches.
    """
    with silenced():
        return _Search(scenario, remembers=remembers).run()

"""The search: every order in which the actions of a scenario can happen.

Ways that lead to the same state are walked on from once; a violation is reported with the way that
led to it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.simulation.checking import CHECKERS
from tests.simulation.exhaustive.gate import Gates, Picture
from tests.simulation.exhaustive.sameness import Names, copied
from tests.simulation.exhaustive.script import SLOTS, Scenario, Script
from tests.simulation.exhaustive.stage import (
    GROUP_ACTIONS,
    LOCAL_ACTIONS,
    WORKERS,
    Action,
    Actor,
    Ground,
    Stage,
)
from tests.simulation.history import Finish, History, Violation
from tests.simulation.process import silenced

_STEP_CHECKERS = ("lineage", "single_writer", "soundness")
Found = dict[str, list[Violation]]
State = tuple[int, ...]  # the number of the ground, and of each worker


@dataclass(frozen=True, slots=True)
class _Step:
    """What an action makes of the parts that it touches."""

    ground: int
    actors: tuple[tuple[int, int], ...]  # (which, its number after it)
    found: Found


class Fleet:
    """All actions of all states; each is carried out once for the parts that it touches.

    A worker's read changes that worker alone, and most of what it does only itself and the ground,
    whatever the other worker is at.
    """

    def __init__(self, script: Script, *, remembers: bool = True) -> None:
        self.script, self._remembers = script, remembers
        self.names = Names()
        self.executed = 0
        self._grounds: dict[int, Ground] = {}
        self._logs: dict[int, tuple[int, ...]] = {}
        self._actors: dict[int, Actor] = {}
        self._enabled: dict[tuple[int, int], tuple[list[Action], list[Action]]] = {}
        self._anywhere: dict[int, list[Action]] = {}
        self._steps: dict[tuple[object, ...], _Step] = {}

    def first(self) -> State:
        stage = Stage.at_the_beginning(self.script)
        return self._ground(stage.ground), *(self._actor(stage.actors[name]) for name in WORKERS)

    def ground(self, number: int) -> Ground:
        return self._grounds[number]

    def ordinary(self, state: State) -> list[Action]:
        ground, *actors = state
        if ground not in self._anywhere:
            self._anywhere[ground] = self._stage(state, ()).enabled_anywhere()
        actions = list(self._anywhere[ground])
        for which in range(len(actors)):
            actions += self._enabled_of(state, which)[0]
        return actions

    def alone(self, state: State, which: int) -> list[Action]:
        return list(self._enabled_of(state, which)[0])

    def faults(self, state: State) -> list[Action]:
        return [
            action
            for which in range(len(state) - 1)
            for action in self._enabled_of(state, which)[1]
        ]

    def _enabled_of(self, state: State, which: int) -> tuple[list[Action], list[Action]]:
        place = state[0], state[which + 1]
        enabled = self._enabled.get(place)
        if enabled is None:
            actor = self._actors[state[which + 1]]
            stage = Stage(self.script, self._grounds[state[0]], {actor.name: actor})
            enabled = stage.enabled(actor), stage.faults(actor)
            actor.detach()
            begin = ("begin", actor.name)
            if begin in enabled[0]:
                after, violations = self.step(state, begin)
                if after == state and not violations:
                    enabled[0].remove(begin)
            self._enabled[place] = enabled
        return enabled

    def step(self, state: State, action: Action) -> tuple[State, Found]:
        """Return the state after an action, and what it did that must not be."""
        kind = action[0]
        if kind in GROUP_ACTIONS:
            touched: tuple[int, ...] = tuple(range(len(WORKERS)))
        else:
            touched = () if kind == "mark" else (WORKERS.index(action[1]),)
        narrow = self._narrow(state, action)
        wide = (action, state[0], *(state[which + 1] for which in touched))
        step = self._steps.get(narrow) or self._steps.get(wide)
        is_narrow = False
        if step is None:
            step, is_narrow = self._execute(state, action, touched)
            if self._remembers:
                self._steps[narrow if is_narrow else wide] = step
        after = list(state)
        after[0] = step.ground if step.ground >= 0 else state[0]
        for which, number in step.actors:
            after[which + 1] = number
        return tuple(after), step.found

    def _narrow(self, state: State, action: Action) -> tuple[object, ...]:
        """Return what an action looks at, if it turns out to change nothing but the worker."""
        kind = action[0]
        if kind in ("read", "begin"):
            return action, "alone", state[1 + WORKERS.index(action[1])]
        if kind == "poll":
            logs = self._logs[state[0]]
            log = logs[-1 - SLOTS + int(action[2])]
            return action, "alone", state[1 + WORKERS.index(action[1])], log
        return (None,)

    def _execute(
        self, state: State, action: Action, touched: tuple[int, ...]
    ) -> tuple[_Step, bool]:
        self.executed += 1
        stage = self._stage(state, touched)
        notes = stage.notes
        notes.finishes = [Finish(0, "", token) for token in stage.ground.finished()]
        stage.do(action)
        violations: Found = {}
        if notes.queries or notes.fenced or notes.broken:
            violations = checked(stage.history(), _STEP_CHECKERS)
        ground = self._ground(stage.ground)
        actors = tuple((w, self._actor(stage.actors[WORKERS[w]])) for w in touched)
        is_narrow = (
            action[0] in ("read", "begin", "poll") and ground == state[0] and not notes.queries
        )
        return _Step(-1 if is_narrow else ground, actors, violations), is_narrow

    def _stage(self, state: State, touched: tuple[int, ...]) -> Stage:
        """Set copies of the parts up, ready for an action."""
        ground = copied(self._grounds[state[0]], {})
        actors = {WORKERS[w]: copied(self._actors[state[w + 1]], {}) for w in touched}
        return Stage(self.script, ground, actors)

    def _ground(self, ground: Ground) -> int:
        key = ground.key(self.names)
        number = self.names.of(key)
        if number not in self._grounds:
            self._grounds[number], self._logs[number] = ground, key
        return number

    def _actor(self, actor: Actor) -> int:
        number = actor.key(self.names)
        if number not in self._actors:
            actor.detach()
            self._actors[number] = actor
        return number


def checked(history: History, checkers: tuple[str, ...]) -> Found:
    violations = {name: list(CHECKERS[name](history)) for name in checkers}
    return {name: list_ for name, list_ in violations.items() if list_}


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
            after, violations = fleet.step(state, action)
            place = after, self._whose_turn(after, action)
            outcome.steps += 1
            if violations:
                self._report(violations, number, action)
            earlier = self._numbers.get(place)
            if earlier is not None:
                outcome.merged += 1
                self._following[number].append(earlier)
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
        number = self._picture_of.get(ground)
        if number is None:
            shown = Picture(self._fleet.ground(ground).shown())
            key = shown.key(self._fleet.names)
            number = self._picture_numbers.setdefault(key, len(self._pictures))
            if number == len(self._pictures):
                self._pictures.append(shown)
            self._picture_of[ground] = number
        return number

    def _report(self, violations: Found, number: int, action: Action | None) -> None:
        if not violations or self.outcome.found:
            return
        trace = [] if action is None else [action]
        while number > 0:
            number, done = self._came[number]
            trace.append(done)
        self.outcome.found, self.outcome.trace = violations, tuple(reversed(trace))

    def _count_ways(self) -> None:
        """Count the ways from the beginning to an end; no way comes back to where it was."""
        ways: dict[int, int] = {}
        under_way: set[int] = set()
        stack = [0]
        while stack:
            number = stack[-1]
            missing = [way for way in self._following[number] if way not in ways]
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
                self._shown_by[place] for place in others if self._shown_by[place] != picture
            )
        gates = Gates(self.script)
        ends = {self._shown_by[number]: number for number in self._ends}
        for picture, violations in gates.search(
            self._pictures, following, ends, self.scenario.batches
        ):
            number = ends.get(picture, self._shown_by.index(picture))
            self._report(violations, number, None)
            break
        self.outcome.batches = gates.batches


def explore(scenario: Scenario, *, remembers: bool = True) -> Outcome:
    """Search a scenario to its end, or to the first violation.

    With `remembers`, an action is carried out only once for the parts that it touches.
    """
    with silenced():
        return _Search(scenario, remembers=remembers).run()

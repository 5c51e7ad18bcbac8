"""All actions of all states of a fleet, each carried out once for the parts that it touches.

A read changes one worker alone, and most of what a worker does only itself and the ground, whatever
the other is at: the result is remembered by the numbers of those parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.checking import CHECKERS
from tests.simulation.exhaustive.parts import Actor, Ground
from tests.simulation.exhaustive.sameness import Names, copied
from tests.simulation.exhaustive.script import SLOTS, Script
from tests.simulation.exhaustive.stage import GROUP_ACTIONS, WORKERS, Action, Stage
from tests.simulation.history import Finish, History, Violation

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
        found = list(self._anywhere[ground])
        for which in range(len(actors)):
            found += self._enabled_of(state, which)[0]
        return found

    def alone(self, state: State, which: int) -> list[Action]:
        """Return what one worker may do next."""
        return list(self._enabled_of(state, which)[0])

    def faults(self, state: State) -> list[Action]:
        return [one for which in range(len(state) - 1) for one in self._enabled_of(state, which)[1]]

    def _enabled_of(self, state: State, which: int) -> tuple[list[Action], list[Action]]:
        place = state[0], state[which + 1]
        known = self._enabled.get(place)
        if known is None:
            actor = self._actors[state[which + 1]]
            stage = Stage(self.script, self._grounds[state[0]], {actor.name: actor})
            known = stage.enabled(actor), stage.faults(actor)
            actor.detach()
            begin = ("begin", actor.name)
            if begin in known[0]:
                after, found = self.step(state, begin)
                if after == state and not found:
                    known[0].remove(begin)
            self._enabled[place] = known
        return known

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
        found: Found = {}
        if notes.queries or notes.fenced or notes.broken:
            found = checked(stage.history(), _STEP_CHECKERS)
        ground = self._ground(stage.ground)
        actors = tuple((w, self._actor(stage.actors[WORKERS[w]])) for w in touched)
        is_narrow = (
            action[0] in ("read", "begin", "poll") and ground == state[0] and not notes.queries
        )
        return _Step(-1 if is_narrow else ground, actors, found), is_narrow

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
    found = {name: list(CHECKERS[name](history)) for name in checkers}
    return {name: list_ for name, list_ in found.items() if list_}

"""Carries out planned faults on running programs, on the broker and on the registry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tests.chaos.faults import Fault, Lane
from tests.chaos.fleet import Fleet, Member
from tests.chaos.patience import Patience
from tidegate.local_stack.parts.process import Service
from tidegate.local_stack.parts.programs import StepFollower, wait_for_step

_CYCLE_DEADLINE_S = 150.0
"""A worker without stream partitions commits once a minute; a broker may be away meanwhile."""

_AIM_DEADLINE_S = 8.0
_GONE_DEADLINE_S = 60.0
_POLL_S = 0.05
_AFTERMATH_S = 45.0
"""How long after its return the absence of a service still explains that a start has failed."""

_LAST_STEP = {"consumer": "state"}
"""The step that ends a cycle; a worker's is the commit."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A fault that was carried out."""

    at_s: float
    kind: str
    victim: str
    step: str
    """What the victim did when it was hit."""
    seconds: float
    """From the blow until the fault was over."""


@dataclass(slots=True)
class Breaker:
    """Breaks one run; `abandoned` ends all waiting."""

    fleet: Fleet
    services: Mapping[str, Service]
    """The broker and the registry, by these words."""
    seconds: Callable[[], float]
    say: Callable[[str], None]
    applied: list[Applied] = field(default_factory=list)
    unhealed: list[str] = field(default_factory=list)
    abandoned: threading.Event = field(default_factory=threading.Event)
    rescale: Callable[[], str] = lambda: ""
    """Starts or retires a worker, and says which."""
    _back_at_s: dict[str, float] = field(default_factory=dict)
    """When each service that went away was there again; infinite until then."""

    def __post_init__(self) -> None:
        """Let the fleet know when a start was bound to fail."""
        self.fleet.was_away = self.was_away

    def follow(
        self, lane: Lane, faults: tuple[Fault, ...], *, began_s: float, for_s: float
    ) -> None:
        """Carry out a lane's faults, each at its instant or when the one before is over."""
        for fault in faults:
            wait_s = began_s + fault.at_s - self.seconds()
            if self.abandoned.wait(max(0.0, wait_s)):
                return
            if self.seconds() > began_s + for_s and not fault.must:
                self.say(f"no time left for {fault.name}")
                return
            match lane:
                case "workers" if fault.kind == "rescale":
                    at_s = self.seconds()
                    self._note(fault, self.rescale(), "", at_s)
                case "workers":
                    self._break_worker(fault)
                case "consumer":
                    self._break_consumer(fault)
                case "broker" | "registry":
                    self._break_service(fault, lane)
                case _:
                    assert_never(lane)

    def was_away(self) -> list[str]:
        """Return the services that are away, or were a moment ago."""
        since_s = self.seconds() - _AFTERMATH_S
        return [name for name, back_s in self._back_at_s.items() if back_s > since_s]

    # ------------------------------------------------------------ programs

    def _break_worker(self, fault: Fault) -> None:
        workers = [name for name in self.fleet.active if name != "consumer"]
        self._break_program(fault, workers[fault.victim % len(workers)])

    def _break_consumer(self, fault: Fault) -> None:
        self._break_program(fault, "consumer")

    def _break_program(self, fault: Fault, name: str) -> None:
        self.await_cycle(name)
        member = self.fleet.current(name)
        if fault.step:
            self._await_step(member, fault.step)
        if self.abandoned.is_set() or member.ending is not None:
            return
        at_s = self.seconds()
        if fault.kind in {"kill-worker", "kill-consumer"}:
            step = self.fleet.kill(member)
            self.fleet.start(name)
            self.say(f"{fault.kind}: killed {member.label} in {step}, started it again")
            self.await_cycle(name)
        else:
            member.program.process.pause()
            step = member.program.step
            if fault.kind in {"replace-stopped-worker", "replace-stopped-consumer"}:
                self._replace(fault, member, step)
            else:
                self.say(f"{fault.kind}: stopped {member.label} in {step} for {fault.stop_s:g} s")
                self.abandoned.wait(fault.stop_s)
                member.program.process.resume()
                self.say(f"{member.label} goes on")
                self.await_cycle(name)
        self._note(fault, member.label, step, at_s)

    def _replace(self, fault: Fault, zombie: Member, step: str) -> None:
        """Start another process of the name while one stands still, then wake that one up."""
        began_s = self.seconds()
        zombie.is_replaced = True
        follower = self.fleet.start(zombie.name)
        self.say(f"{fault.kind}: stopped {zombie.label} in {step}, started {follower.label}")
        self.await_cycle(zombie.name)
        self.abandoned.wait(max(0.0, began_s + fault.stop_s - self.seconds()))
        zombie.program.process.resume()
        self.say(f"{zombie.label} wakes up beside {self.fleet.current(zombie.name).label}")
        if not self._wait(lambda: zombie.ending is not None, deadline_s=_GONE_DEADLINE_S):
            self.unhealed.append(f"{zombie.label} was replaced and works on")
            self.fleet.kill(zombie)

    def await_cycle(self, name: str) -> bool:
        """Wait until the youngest process of a name goes through a whole cycle."""
        last = _LAST_STEP.get(name, "commit")
        patience = Patience(_CYCLE_DEADLINE_S)
        while not self.abandoned.is_set():
            if patience.is_over:
                label = self.fleet.current(name).label
                self.unhealed.append(f"{label} did nothing for {_CYCLE_DEADLINE_S:.0f} s")
                return False
            member = self.fleet.current(name)
            if wait_for_step(
                StepFollower(member.log, 0 if not member.program.has_begun else _size(member)),
                accept=lambda step: step == last,
                go_on=lambda member=member: self._is_current(member) and not patience.is_over,
                deadline_s=float("inf"),
            ):
                return True
            self.abandoned.wait(_POLL_S)
        return False

    def _is_current(self, member: Member) -> bool:
        return (
            not self.abandoned.is_set()
            and member.program.process.is_running
            and self.fleet.current(member.name) is member
        )

    def _await_step(self, member: Member, step: str) -> None:
        wait_for_step(
            StepFollower.at_end(member.log),
            accept=lambda begun: begun == step,
            go_on=lambda: self._is_current(member),
            deadline_s=_AIM_DEADLINE_S,
        )

    # ------------------------------------------------------------ services

    def _break_service(self, fault: Fault, name: str) -> None:
        service = self.services[name]
        at_s = self.seconds()
        self._back_at_s[name] = float("inf")
        if fault.kind == "crash-broker":
            service.kill()
        else:
            service.stop()
        code = service.process.exit_code if service.process else None
        self.say(f"{fault.kind}: the {name} is gone (exit code {code})")
        self.abandoned.wait(fault.stop_s)
        if self.abandoned.is_set():
            return
        service.start()
        self._back_at_s[name] = self.seconds()
        self.say(f"the {name} is back after {self._back_at_s[name] - at_s:.0f} s")
        self._note(fault, name, "", at_s)

    # ------------------------------------------------------------ inside

    def _note(self, fault: Fault, victim: str, step: str, at_s: float) -> None:
        took_s = round(self.seconds() - at_s, 1)
        self.applied.append(Applied(round(at_s, 1), fault.kind, victim, step, took_s))

    def _wait(self, condition: Callable[[], bool], *, deadline_s: float) -> bool:
        patience = Patience(deadline_s)
        while not condition():
            if patience.is_over or self.abandoned.wait(_POLL_S):
                return False
        return True


def _size(member: Member) -> int:
    return member.log.stat().st_size if member.log.exists() else 0

"""Injected faults: rules that tests add, and the selection of a call's fault.

`Faults` only decides; the code that serves the call makes the fault occur.  A rule fires `count`
times, or without end, on each matching call or on a seeded share of them; of several matching
rules, the oldest that has not used up its count applies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found
from spanner_simulator.server.connections import cut_connection

FaultKind = Literal["status", "clean_end", "stall", "slow", "drop"]
FaultTime = Literal["open", "after_rows", "end"]

_RULES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in one call.

    `status`: end with `code` and `message`.  `clean_end`: end with OK, without child records.
    `stall`: send nothing more, not even heartbeats, until `released` is set or the call is
    cancelled.  `slow`: `delay_ms` before each message.  `drop`: cut the TCP connection.  It occurs
    before anything is sent (`open`), after `after_rows` rows, or where the call would end.
    """

    kind: FaultKind = "status"
    when: FaultTime = "open"
    after_rows: int = 0
    code: Code = Code.UNAVAILABLE
    message: str = "Injected fault"
    delay_ms: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)

    @property
    def error(self) -> SpannerError:
        """The error with which a fault of kind `status` ends the call."""
        retry_delay_ms = 1 if self.code is Code.ABORTED else None
        return SpannerError(self.code, self.message, retry_delay_ms=retry_delay_ms)


@dataclass(slots=True, kw_only=True)
class FaultRule:
    """The calls that get a fault: None matches every method, database, change stream, token.

    `count` None: without end.  `probability` is the share of matching calls, drawn from `seed`.
    """

    fault: Fault
    method: str | None = None
    database: str | None = None
    stream: str | None = None
    token: str | None = None
    count: int | None = 1
    probability: float = 1.0
    seed: int = 0
    number: int = 0
    fired: int = 0
    _chance: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311  # repeatable is what is wanted here

    def fires(
        self, method: str, database: str | None, stream: str | None, token: str | None
    ) -> bool:
        """Whether this call gets the fault; counts it if so."""
        if self.count is not None and self.fired >= self.count:
            return False
        is_match = (
            _matches(self.method, method)
            and (database is None or _matches(self.database, database))
            and _matches(self.stream, stream)
            and (self.token is None or self.token == token)
        )
        if not is_match or self._chance.random() >= self.probability:
            return False
        self.fired += 1
        return True


def _matches(expected: str | None, actual: str | None) -> bool:
    if expected is None:
        return True
    return actual is not None and expected.lower() == actual.lower()


class Faults:
    """The active rules; each call asks `plan` once, before it does anything."""

    def __init__(self) -> None:
        self._rules: dict[int, FaultRule] = {}
        self._last_number = 0

    @property
    def rules(self) -> tuple[FaultRule, ...]:
        """All rules, oldest first, including those that have used up their count."""
        return tuple(self._rules.values())

    def add(self, rule: FaultRule) -> FaultRule:
        """Activate a rule and return its number.  INVALID_ARGUMENT for an invalid rule."""
        fault = rule.fault
        refusals = {
            f"kind must be one of {', '.join(get_args(FaultKind))}": (
                fault.kind not in get_args(FaultKind)
            ),
            f"when must be one of {', '.join(get_args(FaultTime))}": (
                fault.when not in get_args(FaultTime)
            ),
            "after_rows must be 0 or more": fault.after_rows < 0,
            "after_rows needs when = after_rows": (
                fault.after_rows > 0 and fault.when != "after_rows"
            ),
            "delay_ms must be 1 or more for kind slow, and 0 for others": (
                (fault.kind == "slow") != (fault.delay_ms > 0)
            ),
            "count must be 1 or more": rule.count is not None and rule.count < 1,
            "probability must lie in (0, 1]": not 0 < rule.probability <= 1,
        }
        for message, is_wrong in refusals.items():
            if is_wrong:
                raise invalid_argument(message)
        if len(self._rules) >= _RULES_MAX:
            raise SpannerError(
                Code.RESOURCE_EXHAUSTED, f"There are {_RULES_MAX} fault rules; clear some first"
            )
        self._last_number += 1
        rule.number = self._last_number
        self._rules[rule.number] = rule
        return rule

    def clear(self, number: int | None = None) -> int:
        """Remove one rule (NOT_FOUND) or all, and release their stalls; return their number."""
        if number is None:
            removed = list(self._rules.values())
        elif number in self._rules:
            removed = [self._rules[number]]
        else:
            raise not_found(f"Fault not found: {number}")
        for rule in removed:
            del self._rules[rule.number]
            rule.fault.released.set()
        return len(removed)

    def reset(self) -> None:
        """Remove all rules, and count from 1 again."""
        self.clear()
        self._last_number = 0

    def plan(
        self,
        method: str,
        *,
        database: str | None = None,
        stream: str | None = None,
        token: str | None = None,
    ) -> Fault | None:
        """The fault of this call, which counts as fired; None: no fault.

        `method` is the bare name, such as ExecuteStreamingSql; `token` that of a stream partition.
        """
        for rule in self._rules.values():
            if rule.fires(method, database, stream, token):
                return rule.fault
        return None

    def drop(self, context: Any) -> bool:
        """Cut the TCP connection of a call; return whether it still existed."""
        return cut_connection(context.peer())


class Holds:
    """Stream partitions that send nothing, not even heartbeats, until they are released.

    `listener` is called with each release, so that waiting queries can be woken.
    """

    def __init__(self, listener: Callable[[Iterable[str]], None] = lambda _tokens: None) -> None:
        self.listener = listener
        self._tokens: set[str] = set()

    def __contains__(self, token: object) -> bool:
        return token in self._tokens

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tokens))

    def hold(self, tokens: Iterable[str]) -> None:
        """Hold these stream partitions from now on."""
        self._tokens.update(tokens)

    def release(self, tokens: Iterable[str] | None = None) -> int:
        """Release these, or all; return how many of them were held."""
        released = self._tokens & set(tokens) if tokens is not None else set(self._tokens)
        self._tokens -= released
        self.listener(sorted(released))
        return len(released)

"""Copies of a world, and a name for what it is: two worlds of one name have the same future.

A copy shares what never changes: frozen dataclasses, named tuples, records that lie in a log for
good.  A name is a small tuple of numbers, one per part of the world, each of which stands for the
part's whole content: parts are compared in full, never by a hash alone.  Left out of a name is only
what no decision looks at: counters for metrics, the numbers of queries, the run's own notes.
"""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

from tidegate.producer.core.inspection import Story
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.producer.core.worker import Worker
from tidegate.producer.memory.broker import Log

_Copier = Callable[[Any, dict[int, Any]], Any]

_LEFT_OUT: dict[type, frozenset[str]] = {
    # The index follows from the slots.
    Worker: frozenset({"counters", "_queries", "_incarnations", "_story", "_index"}),
    TransactionCycle: frozenset({"_counters", "_slots", "_index"}),  # the worker's own
    Slot: frozenset({"_changed"}),
    StreamPartition: frozenset({"_changed"}),
}
_LEFT_OUT_NAMED = {"_Query": frozenset({"query_id"})}


def _is_atom(kind: type) -> bool:
    if kind in _COPIERS:
        return _COPIERS[kind] is None
    params = getattr(kind, "__dataclass_params__", None)
    is_frozen = params is not None and params.frozen
    return is_frozen or issubclass(kind, Enum | random.Random | Exception | tuple)


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return a copy that shares nothing changeable with the original."""
    kind = type(value)
    try:
        copier = _COPIERS[kind]
    except KeyError:
        copier = _COPIERS[kind] = None if _is_atom(kind) else _copier_of(kind)
    if copier is None:
        return value
    key = id(value)
    if key in memo:
        return memo[key]
    return copier(value, memo)


def _copied_tuple(value: tuple[Any, ...], memo: dict[int, Any]) -> Any:
    parts = [copied(element, memo) for element in value]
    for before, after in zip(value, parts, strict=True):
        if before is not after:
            return tuple(parts)
    return value


def _copied_list(value: Any, memo: dict[int, Any]) -> Any:
    fresh = memo[id(value)] = type(value)()
    fresh.extend([copied(element, memo) for element in value])
    return fresh


def _copied_set(value: set[Any], memo: dict[int, Any]) -> Any:
    return memo.setdefault(id(value), set(value))


def _copied_dict(value: dict[Any, Any], memo: dict[int, Any]) -> Any:
    fresh = memo[id(value)] = type(value)()
    for key, member in value.items():
        fresh[copied(key, memo)] = copied(member, memo)
    return fresh


def _copied_method(value: MethodType, memo: dict[int, Any]) -> Any:
    return MethodType(value.__func__, copied(value.__self__, memo))


def _copied_log(log: Log, memo: dict[int, Any]) -> Log:
    """Share the records whose transaction is marked here: nothing of them changes any more."""
    fresh = memo[id(log)] = Log(log.place)
    fresh.begin, fresh.end = log.begin, log.end
    fresh.entries = [copied(e, memo) if e.transaction in log.open else e for e in log.entries]
    fresh.open = {copied(producer, memo): offset for producer, offset in log.open.items()}
    return fresh


def _copier_of(kind: type) -> _Copier:
    """Return what copies the objects of a class, attribute by attribute."""
    if issubclass(kind, dict):
        return _copied_dict
    slots = _slots(kind)

    def copy(value: Any, memo: dict[int, Any]) -> Any:
        fresh = memo[id(value)] = kind.__new__(kind)
        for name in slots:
            setattr(fresh, name, copied(getattr(value, name), memo))
        if hasattr(value, "__dict__"):
            held = fresh.__dict__
            for name, attribute in value.__dict__.items():
                held[name] = copied(attribute, memo)
        return fresh

    return copy


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(
        name
        for base in kind.__mro__
        for name in getattr(base, "__slots__", ())
        if name not in ("__dict__", "__weakref__")
    )


_COPIERS: dict[type, _Copier | None] = {
    **dict.fromkeys((int, str, bytes, float, bool, type(None), type, frozenset)),
    FunctionType: None,
    Story: None,  # for reports only
    tuple: _copied_tuple,
    list: _copied_list,
    deque: _copied_list,
    set: _copied_set,
    dict: _copied_dict,
    MethodType: _copied_method,
    Log: _copied_log,
}  # by class; None for what is shared


class Names:
    """Gives every content a number, the same for equal contents."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[Any, int]] = {}

    def of(self, content: Hashable) -> int:
        return self._numbers.setdefault(content, len(self._numbers))

    def of_record(self, record: Any) -> int:
        """Return the number of something immutable, which copies of a world share."""
        numbered = self._known.get(id(record))
        if numbered is None:
            numbered = self._known[id(record)] = record, self.of(_plain(record))
        return numbered[1]

    def of_object(self, value: Any) -> int:
        return self.of(self._frozen(value))

    def _frozen(self, value: Any) -> Hashable:
        kind = type(value)
        if kind in (int, str, bytes, bool, type(None), frozenset, float):
            return value
        if kind in (list, tuple, deque):
            return (kind.__name__, *(self._frozen(element) for element in value))
        if issubclass(kind, dict):
            # The order of a dictionary decides the order of effects: it belongs to the content.
            return tuple((self._frozen(key), self._frozen(member)) for key, member in value.items())
        if kind is set:
            return frozenset(value)
        if isinstance(value, Enum):
            return value.name
        if _is_atom(kind):
            return (kind.__name__, self.of_record(value))
        left_out = _LEFT_OUT.get(kind) or _LEFT_OUT_NAMED.get(kind.__name__, frozenset())
        held = {name: getattr(value, name) for name in _slots(kind)}
        held |= getattr(value, "__dict__", {})
        return (
            kind.__name__,
            # Depends on the identity of two positions, which may be equal all the same.
            value.has_news if isinstance(value, StreamPartition) else None,
            *(self._frozen(attribute) for name, attribute in held.items() if name not in left_out),
        )


def _plain(record: Any) -> Hashable:
    """Return an immutable object as something hashable, whatever containers it holds."""
    if is_dataclass(record) and not isinstance(record, type):
        names = record.__dataclass_fields__
        return (type(record).__name__, *(_plain(getattr(record, name)) for name in names))
    if isinstance(record, tuple | list):
        return tuple(_plain(element) for element in record)
    if isinstance(record, dict):
        return frozenset((key, _plain(member)) for key, member in record.items())
    if isinstance(record, BaseException):
        return (type(record).__name__, str(record))
    hash(record)
    return record

"""What a program gives to a query as a function or a sink: checked before anything is created."""

from __future__ import annotations

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.port import Sink

_METHODS = ("open", "write")
_OF_MIRRORS = ("merge", "versions")


def require_function(given: object, method: str) -> None:
    """Raise ConfigError for what cannot be called."""
    if not callable(given):
        raise ConfigError(
            f"{method}: not a function: {type(given).__name__}",
            hint="Give a function of two arguments",
        )


def named_sink(sink: Sink) -> Sink:
    """Return the sink; raises ConfigError if it lacks a part of the port."""
    given: object = sink
    kind = type(given).__name__
    if isinstance(given, type):
        raise ConfigError(
            f"sink: {given.__name__} is a class", hint=f"Give an object of it: {given.__name__}(…)"
        )
    lacks = [name for name in _METHODS if not callable(getattr(given, name, None))]
    if lacks or not isinstance(getattr(given, "name", None), str):
        lacks += [] if isinstance(getattr(given, "name", None), str) else ["name"]
        raise ConfigError(
            f"sink: {kind} is not a sink, it lacks {', '.join(lacks)}",
            hint="A sink has a name (text), open(…) and write(release): see tidegate.Sink",
        )
    if all(callable(getattr(given, name, None)) for name in _OF_MIRRORS):
        raise ConfigError(
            f"sink: {kind} has merge(…) and versions(…), as the mirrors have",
            hint="A sink of your own takes each release by itself: give these methods other names",
        )
    return sink

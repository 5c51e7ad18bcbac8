"""The consumer's settings as options of a builder: names are checked at once, values at the end."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from tidegate.program.settings import InvalidSettings
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.sinks.port import Sink

_SESSION = "Give it to tidegate.session(), or set it on your own session"
_PROGRAM = "`tidegate-consumer run` has it; a program stops the query by itself"
_PROGRAM_ALONE = "`tidegate-consumer run` has it"
_METRICS = "`tidegate-consumer run` has it; in a program, look at query.lastProgress"
_WITHOUT_EFFECT = {
    "master": _SESSION,
    "packages": _SESSION,
    "jars": _SESSION,
    "java_options": _SESSION,
    "until": _PROGRAM,
    "openlineage": _PROGRAM_ALONE,
    "metrics_host": _METRICS,
    "metrics_port": _METRICS,
}
_OPTIONS = frozenset(ConsumerConfig.model_fields).difference(_WITHOUT_EFFECT)
_HINT = "docs/reference/settings.md lists the settings with their values"


def require_option(name: str) -> None:
    """Raise ConfigError for a name that is not a setting, or one that a program cannot use."""
    if name in _OPTIONS:
        return
    if name in _WITHOUT_EFFECT:
        raise ConfigError(
            f"option {name}: it has no effect on a query that a program starts",
            hint=_WITHOUT_EFFECT[name],
        )
    if name.startswith("kafka."):
        plain = name.removeprefix("kafka.")
        hint = f'Give options of the Kafka client as kafka_options={{"{plain}": …}}'
    else:
        words = {_plain(option): option for option in _OPTIONS}
        close = difflib.get_close_matches(_plain(name), words, n=1, cutoff=0.8)
        hint = f"Did you mean {words[close[0]]}?" if close else _HINT
    raise ConfigError(f"option {name}: unknown setting", hint=hint)


def load_settings(given: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings: those given, before those of the environment.

    Raises InvalidSettings, a ConfigError, with a line for each that cannot be used.
    """
    # What a query of a program does not use is not taken from the environment either; log lines of
    # each batch are too much for a notebook.
    fixed = {"log_level": "warning", "until": "", "openlineage": False, "metrics_port": 0}
    try:
        return ConsumerConfig.load(None, **{**fixed, **given})
    except InvalidSettings as error:
        raise InvalidSettings(error.faults, hint=_HINT) from None


def _plain(name: str) -> str:
    """Return a name without what camel case and snake case differ in."""
    return name.replace("_", "").replace(".", "").casefold()


_METHODS = ("open", "write")
_MIRROR_METHODS = ("merge", "versions")


def require_function(given: object, method: str) -> None:
    """Raise ConfigError for a value that is not callable."""
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
    if all(callable(getattr(given, name, None)) for name in _MIRROR_METHODS):
        raise ConfigError(
            f"sink: {kind} has merge(…) and versions(…), as the mirrors have",
            hint="A sink of your own takes each release by itself: give these methods other names",
        )
    return sink

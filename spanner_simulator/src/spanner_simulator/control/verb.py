"""A verb: a method marked as question or action, whose arguments are read from its signature.

Only JSON's types occur in signatures, so that an error can name the wrong argument for every
caller, from Python or over HTTP. No particular verb is known here.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from spanner_simulator.errors import SpannerError, invalid_argument

_MARK = "_verb_mark"
_F = TypeVar("_F", bound="Callable[..., Any]")
_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}


@dataclass(frozen=True, slots=True)
class _Mark:
    method: Literal["GET", "POST"]
    is_lines: bool
    # Names over HTTP that Python reserves for itself.
    renamed: Mapping[str, str]


def question(*, is_lines: bool = False, **renamed: str) -> Callable[[_F], _F]:
    """Mark a method that changes nothing: GET. `is_lines`: one JSON line for each element."""

    def mark(function: _F) -> _F:
        return _verb(function, _Mark("GET", is_lines, renamed))

    return mark


def action(function: _F) -> _F:
    """Mark a method that does something: POST."""
    return _verb(function, _Mark("POST", is_lines=False, renamed={}))


def _verb(function: _F, mark: _Mark) -> _F:
    """The method with its mark; calls from Python also check the types of arguments."""
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        # Not before the module is whole.
        return get_type_hints(function)

    @functools.wraps(function)
    def checked(*positional: Any, **named: Any) -> Any:
        bound = signature.bind(*positional, **named)
        for name, value in list(bound.arguments.items())[1:]:
            # In Python a tuple is accepted as a list.
            plain = list(value) if isinstance(value, tuple) else value
            if not _fits(plain, hints()[name]):
                raise _wrong(name, hints()[name], value)
            bound.arguments[name] = plain
        return function(*bound.args, **bound.kwargs)

    setattr(checked, _MARK, mark)
    return cast("_F", checked)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: `name` over HTTP, `keyword` in Python."""

    name: str
    keyword: str
    hint: Any
    is_required: bool
    default: Any

    @property
    def type_name(self) -> str:
        """Its type as text."""
        return _describe(self.hint)

    def check(self, value: Any) -> Any:
        """The value, if it has the right type; else INVALID_ARGUMENT, which names the argument."""
        if not _fits(value, self.hint):
            raise self._wrong(value)
        return value

    def parse(self, text: str) -> Any:
        """The value of a text from a query string; INVALID_ARGUMENT that names the argument."""
        options = _options(self.hint)
        try:
            if bool in options:
                return {"true": True, "false": False}[text.lower()]
            for number in (int, float):
                if number in options:
                    return number(text)
        except (ValueError, KeyError):
            raise self._wrong(text) from None
        return self.check(text)

    def _wrong(self, value: Any) -> SpannerError:
        return _wrong(self.name, self.hint, value)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its path over HTTP is `/` and its name."""

    name: str
    method: Literal["GET", "POST"]
    summary: str
    arguments: tuple[Argument, ...]
    keyword: str
    is_lines: bool

    def read(self, given: Mapping[str, Any], *, is_text: bool) -> dict[str, Any]:
        """Keyword arguments from an HTTP request; `is_text`: from a query string.

        INVALID_ARGUMENT names a missing or unknown argument, or one of the wrong type.
        """
        arguments = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in arguments:
                allowed = ", ".join(arguments) or "none"
                raise invalid_argument(
                    f"{self.name} has no argument {name}; its arguments: {allowed}."
                )
        values: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.name in given:
                value = given[argument.name]
                values[argument.keyword] = (
                    argument.parse(value) if is_text else argument.check(value)
                )
            elif argument.is_required:
                raise invalid_argument(
                    f"The argument {argument.name} is missing ({argument.type_name})."
                )
        return values


def verbs_of(kind: type) -> dict[str, Verb]:
    """All verbs of a class by name."""
    verbs: dict[str, Verb] = {}
    for keyword, function in inspect.getmembers(kind, inspect.isfunction):
        mark: _Mark | None = getattr(function, _MARK, None)
        if mark is None:
            continue
        hints = get_type_hints(function)
        arguments = tuple(
            Argument(
                mark.renamed.get(parameter.name, parameter.name),
                parameter.name,
                hints[parameter.name],
                parameter.default is inspect.Parameter.empty,
                parameter.default,
            )
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        )
        summary = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        name = keyword.replace("_", "-")
        verbs[name] = Verb(name, mark.method, summary, arguments, keyword, mark.is_lines)
    return verbs


def _wrong(name: str, hint: Any, value: Any) -> SpannerError:
    return invalid_argument(f"The argument {name} must be {_describe(hint)}, not {value!r}.")


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(name, parts[0]) and _fits(entry, parts[1]) for name, entry in value.items()
        )
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _describe(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return "a value"
    if origin in (Union, UnionType):
        return " or ".join(_describe(part) for part in parts if part is not NoneType)
    if origin is Literal:
        return f"one of {', '.join(parts)}"
    if origin is list:
        return f"a list, each {_describe(parts[0])}"
    if origin is dict:
        return f"an object, each {_describe(parts[1])}"
    return _NAMES[hint]

"""Command line options made from settings, so that a setting is described in one place.

Secrets and tables have no option: other users of a machine can read command lines.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidegate.program.logs import start_log
from tidegate.program.settings import Settings, has_flag

_Command: TypeAlias = Callable[..., None]
_Settings = TypeVar("_Settings", bound=Settings)

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings; environment and flags override it."),
]
"""The option that names the settings file, the first argument of `Settings.load`."""


def with_settings(
    settings: type[_Settings], *, log: Callable[[Any], None] = start_log
) -> Callable[[_Command], _Command]:
    """Give a Typer command `--config` and one option per setting, in place of its `settings`.

    The command is called once the settings are loaded and `log` has started the log.
    """

    def decorate(command: _Command) -> _Command:
        own = _parameters(command, but="settings")

        @functools.wraps(command)
        def run(config: Path | None = None, **options: Any) -> None:
            arguments = {parameter.name: options.pop(parameter.name) for parameter in own}
            loaded = settings.load(config, **options)
            log(loaded)
            command(loaded, **arguments)

        file = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile
        )
        _set_parameters(run, [*own, file, *_options(settings, only=None)])
        return run

    return decorate


def with_flags(
    settings: type[Settings], *, only: Collection[str] | None = None
) -> Callable[[_Command], _Command]:
    """Give a Typer command one option per setting (or those in `only`) in place of its `**flags`.

    An option that is not given is None, as `Settings.load` expects.
    """

    def decorate(command: _Command) -> _Command:
        own = _parameters(command, but="flags")
        _set_parameters(command, [*own, *_options(settings, only=only)])
        return command

    return decorate


def _parameters(command: _Command, *, but: str) -> list[inspect.Parameter]:
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters
        if parameter.name != but
    ]


def _set_parameters(command: _Command, parameters: list[inspect.Parameter]) -> None:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # a function may have one


def _options(settings: type[Settings], *, only: Collection[str] | None) -> list[inspect.Parameter]:
    """Return an option for each setting that has a flag, in the order of the panels."""
    panels = {name: title for title, names in settings.panels.items() for name in names.split()}
    titles = list(settings.panels)
    chosen = [
        name
        for name, field in settings.model_fields.items()
        if has_flag(field) and (only is None or name in only)
    ]
    chosen.sort(key=lambda name: titles.index(panels[name]) if name in panels else -1)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(settings.model_fields[name], panel=panels.get(name)),
        )
        for name in chosen
    ]


def _annotation(field: FieldInfo, *, panel: str | None) -> Any:
    # Choices stay text: `Settings.load` reports their faults together with all others.
    kind: Any = field.annotation if field.annotation in (int, float, Path) else str
    is_shown = field.default not in (PydanticUndefined, "", None)
    default = f" Default: {field.default}." if is_shown else ""
    option = typer.Option(
        help=f"{field.description}.{default}", metavar=_choices(field), rich_help_panel=panel
    )
    return Annotated[kind | None, option]


def _choices(field: FieldInfo) -> str | None:
    """Return the values that a flag accepts, if there are few; otherwise None."""
    if field.annotation is bool:
        return "true|false"
    if get_origin(field.annotation) is Literal:
        return "|".join(filter(None, get_args(field.annotation)))
    return None

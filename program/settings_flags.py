"""Command line options made from settings, so that a setting is described in one place.

Secrets and tables have no option: other users of a machine can read command lines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidegate.program.settings import Settings, has_flag

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings; environment and flags override it."),
]
"""The option that names the settings file, the first argument of `Settings.load`."""


def with_flags(
    settings: type[Settings], *, only: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a Typer command one option per setting (or those in `only`) in place of its `**flags`.

    An option that is not given is None, which `Settings.load` takes as such.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        options = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field)
            )
            for name, field in settings.model_fields.items()
            if has_flag(field) and (only is None or name in only)
        ]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + options
        )
        return command

    return decorate


def _annotation(field: FieldInfo) -> Any:
    # Choices stay text: their faults are reported together with all others.
    kind: Any = field.annotation if field.annotation in (int, float, Path) else str
    is_choice = get_origin(field.annotation) is Literal
    choices = "|".join(filter(None, get_args(field.annotation))) if is_choice else None
    is_shown = field.default not in (PydanticUndefined, "", None)
    default = f" Default: {field.default}." if is_shown else ""
    option = typer.Option(help=f"{field.description}.{default}", metavar=choices)
    return Annotated[kind | None, option]

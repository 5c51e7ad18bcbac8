"""Settings files of producer and consumer, for commands that are typed beside a running stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_settings_file(file: Path, settings: Mapping[str, str | Mapping[str, object]]) -> None:
    """Write settings by name; only this user can read the file, since options may be secrets."""
    lines = [f"{name} = {as_toml(value)}\n" for name, value in settings.items()]
    file.touch(mode=0o600)
    file.write_text("".join(lines), encoding="utf-8")


def as_toml(value: object) -> str:
    """Return a text, number, truth value, or a table of these, as TOML writes it in one line."""
    match value:
        case bool() | int() | float():
            return json.dumps(value)
        case str():
            # TOML's texts are JSON's, but for one character that JSON leaves as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            pairs = (f"{as_toml(str(name))} = {as_toml(one)}" for name, one in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            raise TypeError(type(value).__name__)

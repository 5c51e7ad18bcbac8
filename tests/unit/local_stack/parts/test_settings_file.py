"""A settings file is TOML that says what it was given."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from tidegate.local_stack.parts.settings_file import as_toml, write_settings_file

TEXT = 'a "b" \\ \n \x00 \x7f ü 😀 {} = #'


def test_what_is_written_is_read(tmp_path: Path):
    settings = {
        "prefix": TEXT,
        "kafka_options": {"sasl.password": TEXT, TEXT: "", "n": 3, "x": 2.5, "is_on": True},
        "source": {},
    }
    file = tmp_path / "producer.toml"
    for _ in range(2):
        write_settings_file(file, settings)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == settings
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_toml_lacks_is_refused():
    with pytest.raises(TypeError, match="NoneType"):
        as_toml({"a": None})

"""Extras: what to type where one is not installed."""

from __future__ import annotations

import sys

import pytest

from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError


def test_an_installed_extra_passes_without_being_loaded():
    before = set(sys.modules)
    Extra("x", ("json", "this")).require()
    assert "this" not in set(sys.modules) - before


@pytest.mark.parametrize("module", ["no_such_module", "no_such_package.module"])
def test_a_missing_extra_says_what_to_type(module):
    with pytest.raises(ConfigError) as caught:
        Extra("local", ("json", module)).require()
    assert str(caught.value) == f'{module}: not installed. Type: pip install "tidegate[local]"'
    assert caught.value.exit_code == 2

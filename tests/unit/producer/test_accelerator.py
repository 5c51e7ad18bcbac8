"""Whether the compiled module is used; what it does is tested beside its callers."""

import sys
from types import ModuleType

import pytest

from tidegate.producer import accelerator


@pytest.fixture
def module(monkeypatch):
    found = ModuleType("tidegate_accelerator")
    found.INTERFACE = accelerator._INTERFACE
    monkeypatch.setitem(sys.modules, "tidegate_accelerator", found)
    return found


def test_it_is_used_where_it_is_installed(module):
    assert accelerator._found({}) == (module, "used")


@pytest.mark.parametrize("value", ["off", "OFF"])
def test_it_can_be_turned_off(module, value):
    assert accelerator._found({"TIDEGATE_ACCELERATOR": value}) == (None, "turned off")


def test_a_module_of_another_interface_is_not_used(module):
    module.INTERFACE = accelerator._INTERFACE - 1
    assert accelerator._found({}) == (None, "another version")


def test_nothing_needs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tidegate_accelerator", None)
    assert accelerator._found({}) == (None, "not installed")


def test_the_one_in_use_is_described():
    used = accelerator.accelerator() is not None
    assert (accelerator.describe_accelerator() == "used") == used

"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes depends on how busy the machine is, and not on the code.
settings.register_profile("patient", settings.get_profile("default"), deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("patient")


@pytest.fixture(scope="session")
def project() -> Path:
    """The folder of the simulator's `pyproject.toml`."""
    return Path(__file__).resolve().parent.parent

"""Whether an extra of the distribution is installed, for the programs that need one.

pip installs every console script, whatever the extras.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from tidegate.schemas.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra by its name, and the modules whose presence shows that it is installed."""

    name: str
    modules: tuple[str, ...]

    def require(self) -> None:
        """Raise ConfigError with the command to install the extra if a module is missing.

        Imports no module.
        """
        missing = [name for name in self.modules if not is_installed(name)]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)}: not installed",
                hint=(
                    f'Type: pip install "tidegate[{self.name}]" '
                    f'(in a clone of the repository: pip install ".[{self.name}]")'
                ),
            )


def is_installed(module: str) -> bool:
    """Whether a module could be imported; imports at most its parents."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False

"""The local stack's branch of the error tree.

LocalStackError             a part cannot start or died                     exit 1
├── PartFailedError         a child program ended, or was not ready in time
└── FetchError              JVM parts could not be fetched
ConfigError (schemas)
├── JavaMissingError        no Java that runs
├── JavaUnsupportedError    only Javas of other versions
└── PortTakenError          a port that was asked for is in use
"""

from tidegate.schemas.errors import ConfigError, TidegateError

__all__ = [
    "FetchError",
    "JavaMissingError",
    "JavaUnsupportedError",
    "LocalStackError",
    "PartFailedError",
    "PortTakenError",
]


class LocalStackError(TidegateError):
    """A part of the local stack cannot go on."""


class PartFailedError(LocalStackError):
    """A child program ended by itself, or did not become ready within its deadline."""


class FetchError(LocalStackError):
    """The JVM parts could not be fetched, or what came is incomplete."""


class JavaMissingError(ConfigError):
    """No `java` was found that runs at all."""


class JavaUnsupportedError(ConfigError):
    """Every `java` found is older than 17 or newer than 21."""


class PortTakenError(ConfigError):
    """A port that the operator asked for belongs to another program."""

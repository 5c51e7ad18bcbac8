"""The local stack's branch of the error tree.

LocalStackError             a part failed                                   exit 1
├── PartFailedError         a child process ended, or was not ready in time
└── FetchError              fetching the JVM parts failed
ConfigError (schemas)                                                       exit 2
├── JavaMissingError        no Java runs
├── JavaUnsupportedError    only Java of other versions
└── PortTakenError          a port from the settings is in use
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
    """A part of the local stack failed."""


class PartFailedError(LocalStackError):
    """A child process ended by itself, or was not ready within its deadline."""


class FetchError(LocalStackError):
    """Fetching jars failed, or they are incomplete."""


class JavaMissingError(ConfigError):
    """No `java` was found that runs."""


class JavaUnsupportedError(ConfigError):
    """Every `java` found is too old or too new for the installed Spark."""


class PortTakenError(ConfigError):
    """Another program uses a port from the settings."""

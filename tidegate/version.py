"""The version of the installed distribution; a module of its own, below everything else."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tidegate")
except PackageNotFoundError:  # a source tree on the path that was never installed
    __version__ = "0+unknown"

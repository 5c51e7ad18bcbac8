"""Tidegate: row changes from Spanner change streams to Spark, in commit order, each exactly once.

This package is the only import root. The folders at the top of the repository (`schemas`,
`producer`, `spark_consumer`, `spanner_simulator`, `local_stack`) are its subpackages through
relative links, and are never imported under their bare names. It imports none of them by itself,
so that `import tidegate` needs no extra.
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("tidegate")
except PackageNotFoundError:  # a source tree on the path that was never installed
    __version__ = "0+unknown"

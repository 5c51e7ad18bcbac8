"""`python -m tidegate.spark_consumer`, and the file that `spark-submit` is given.

`spark-submit` starts it by its path, or a copy of it anywhere.  Python then puts the file's folder
on the path, and this package's folder has modules with the names of other packages, such as `kafka`
and `metrics`.
"""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
if (_HERE / "__init__.py").exists():
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != _HERE]

from tidegate.spark_consumer.cli import main  # noqa: E402 - the path comes first

main()

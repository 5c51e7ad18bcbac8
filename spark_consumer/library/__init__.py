"""The consumer as a library: what `import tidegate` offers to a program that has a session.

Raises ConfigError, which says what to install, where pyspark or Delta's Python part is missing.
"""

from __future__ import annotations

from tidegate.spark_consumer.spark.requirements import require_python_parts

require_python_parts()

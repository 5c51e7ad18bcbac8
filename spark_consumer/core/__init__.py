"""The gate's decisions: frontier, watermark, releases, plans and states.

Pure: no Spark, no I/O, no clock.
"""

_NAME = "tidegate.spark_consumer.core"
if __name__ != _NAME:
    message = f"this package is {_NAME}, and was imported as {__name__!r}: write `import {_NAME}`"
    raise ImportError(message)

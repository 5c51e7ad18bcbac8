"""Systems that the consumer asks before Spark starts."""

_NAME = "tidegate.spark_consumer.adapters"
if __name__ != _NAME:
    message = f"this package is {_NAME}, and was imported as {__name__!r}: write `import {_NAME}`"
    raise ImportError(message)

"""Systems that the consumer asks before Spark starts."""

if __name__ != "tidegate.spark_consumer.adapters":
    message = (
        f"this package is tidegate.spark_consumer.adapters, and was imported as {__name__!r}: "
        "write `import tidegate.spark_consumer.adapters`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

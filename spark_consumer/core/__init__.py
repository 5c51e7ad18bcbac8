"""The gate's decisions: frontier, watermark, releases, plans and states.  Pure: no Spark, no I/O, no clock."""

if __name__ != "tidegate.spark_consumer.core":
    message = (
        f"this package is tidegate.spark_consumer.core, and was imported as {__name__!r}: "
        "write `import tidegate.spark_consumer.core`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

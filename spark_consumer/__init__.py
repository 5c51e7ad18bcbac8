"""The consumer: the gate that lets changes through in commit order, and its sinks."""

if __name__ != "tidegate.spark_consumer":
    message = (
        f"this package is tidegate.spark_consumer, and was imported as {__name__!r}: "
        "write `import tidegate.spark_consumer`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

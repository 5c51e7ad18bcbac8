"""The gate: changes from Kafka to tables, in commit order, each exactly once.

`core/` decides and knows neither Spark nor I/O; `spark/` executes what `core/` has decided;
`adapters/` asks Kafka before Spark starts.
`spark.query.build_query` is the way in for a session that somebody else owns.
"""

if __name__ != "tidegate.spark_consumer":
    message = (
        f"this package is tidegate.spark_consumer, and was imported as {__name__!r}: "
        "write `import tidegate.spark_consumer`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

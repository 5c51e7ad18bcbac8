"""The producer fleet: reads a change stream's stream partitions and publishes them to Kafka.

`core/` decides (pure state machines), `driver/` runs threads and time, `translation/` makes
messages of records, `spanner/` and `kafka/` hold the adapters, `cli/` wires them.  `datastream/`
reads files in place of Spanner, `backfill/` reads rows of tables, `observation/` has the metrics,
`memory/` the ports in memory for tests.

Start it with `tidegate-producer run` or `python -m tidegate.producer`.
"""

if __name__ != "tidegate.producer":
    message = (
        f"this package is tidegate.producer, and was imported as {__name__!r}: "
        "write `import tidegate.producer`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

"""The wire contract between producer and consumer.

Avro schemas, topic names, the order key, the wire format, the records of the progress topic and the
error tree.  It uses neither Spanner's API nor Spark, and does no I/O.
"""

if __name__ != "tidegate.schemas":
    message = (
        f"this package is tidegate.schemas, and was imported as {__name__!r}: "
        "write `import tidegate.schemas`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

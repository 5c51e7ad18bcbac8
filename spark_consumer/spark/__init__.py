"""Everything that needs pyspark: the source, the batch function, the sinks."""

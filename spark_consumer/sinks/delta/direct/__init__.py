"""Delta tables written by delta-rs in this process, without Spark: those of small releases."""

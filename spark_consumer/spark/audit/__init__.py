"""The audit of an output on a Spark session: rows and markers as frames, and their comparison."""

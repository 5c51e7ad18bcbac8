"""The streaming query and its Spark session."""

"""The way into Delta tables without Spark."""

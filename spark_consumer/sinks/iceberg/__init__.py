"""Iceberg tables: a changelog, a mirror, and a side table of incomplete rows."""

"""Iceberg tables: a changelog, a mirror, and the incomplete rows beside it."""

"""Functions of GoogleSQL and PostgreSQL that DuckDB does not have, or computes differently."""

"""Queries, DML and expressions in both dialects, over the core's rows.

sqlglot parses a statement, this package binds its names and types against the catalogue as Spanner
would, reads the narrowest key ranges that the statement needs, and lets DuckDB compute the result.
It uses only the core: no wire format, no sessions, no clock.
"""

"""Queries, DML and expressions in both dialects, over the core's rows.

sqlglot reads a statement, this package binds its names and types against the catalogue as Spanner
would, reads the narrowest key ranges that the statement needs, and leaves the computing to DuckDB.
It knows the core and nothing above: no wire format, no sessions, no clock of its own.
"""

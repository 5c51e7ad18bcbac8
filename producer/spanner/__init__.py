"""Spanner: change stream queries, reads of tables, the catalogue, and checks before the start.

`transport/` has connections and calls, `decoding/` makes records of their responses.
"""

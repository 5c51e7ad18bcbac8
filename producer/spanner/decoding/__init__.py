"""Decodes response messages of queries to records, in each form of a change stream."""

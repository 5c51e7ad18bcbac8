"""Rows of change stream queries as protobuf bytes, in the three forms that clients read."""

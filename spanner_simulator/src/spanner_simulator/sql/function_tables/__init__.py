"""The functions and operators of both dialects, one signature to a line."""

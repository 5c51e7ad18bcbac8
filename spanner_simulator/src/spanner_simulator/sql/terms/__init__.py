"""The values of the binder: bound expressions, literals, conversions between types."""

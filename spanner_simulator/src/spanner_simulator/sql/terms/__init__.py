"""What the binder computes with: bound expressions, literals, conversions between types."""

"""Delta tables: the ordered changelog, the mirror, late changes, and reading a consistent cut."""

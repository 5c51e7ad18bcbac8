"""Delta tables: their commits, layout, names and maintenance, and reading a consistent cut."""

"""Functions of both dialects: their signatures, and what DuckDB is given from Python for them."""

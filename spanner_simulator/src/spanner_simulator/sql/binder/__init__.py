"""From a parsed statement to DuckDB's text: names, types, and the rows that it depends on."""

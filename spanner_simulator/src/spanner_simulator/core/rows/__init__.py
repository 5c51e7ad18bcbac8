"""The contents of tables: rows in versions, a transaction's writes, and whether it may commit."""

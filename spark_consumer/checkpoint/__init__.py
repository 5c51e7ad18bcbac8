"""The files that a query stores between batches: states, plans, frontiers, schemas; Spark's log."""

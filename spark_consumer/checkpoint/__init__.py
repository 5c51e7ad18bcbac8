"""What a query stores between batches: states, plans, frontiers and schemas; Spark's offset log."""

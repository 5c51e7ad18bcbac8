"""What tables hold: rows in versions, what a transaction writes, and whether it may commit."""

"""One micro-batch: its rows, the segments it keeps for a later one, and the loop that runs it."""

"""From commits to change records: assembly, stream partitions and the queries that read them."""

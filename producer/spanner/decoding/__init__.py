"""Response messages of queries to records, in each form of a change stream."""

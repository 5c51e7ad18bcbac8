"""Files of changes: Parquet, and the layout of Google's Datastream."""

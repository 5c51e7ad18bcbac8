"""The Spanner side: channels, change stream queries, decoding, the catalogue, validation."""

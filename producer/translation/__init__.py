"""Data change records as framed Avro messages, and the evolution of a table's encoding."""

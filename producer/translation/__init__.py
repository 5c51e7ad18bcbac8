"""From data change records to framed Avro messages, and how a table's encoding evolves."""

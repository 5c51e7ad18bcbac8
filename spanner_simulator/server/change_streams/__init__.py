"""Change stream queries on the wire: rows in each form, messages, resume tokens, faults."""

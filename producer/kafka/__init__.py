"""The Kafka side: group membership, the transactional publisher, topics."""

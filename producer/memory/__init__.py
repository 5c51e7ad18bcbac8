"""The producer's ports in memory, for tests: broker, consumer group, publisher, clock."""

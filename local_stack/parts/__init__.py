"""Kafka, the registry, the simulator and Java, and the child processes that they run in."""

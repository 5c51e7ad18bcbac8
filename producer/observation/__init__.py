"""What operators see of a worker: metrics, health, retried faults, OpenLineage events."""

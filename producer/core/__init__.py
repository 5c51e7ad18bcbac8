"""Every decision of a worker, as pure state machines: events and the time in, effects out."""

"""Tables that changes are merged into: the mirror, the history, the mirror by key."""

"""gRPC itself: the handlers of methods, and errors as statuses."""

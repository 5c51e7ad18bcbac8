"""gRPC itself: which method is answered by whom, and errors as statuses."""

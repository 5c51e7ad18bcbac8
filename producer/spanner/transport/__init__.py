"""Calls of Spanner's API: connections, credentials, and how calls fail."""

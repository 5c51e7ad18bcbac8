"""Calls of Spanner's API: connections, credentials, and failures."""

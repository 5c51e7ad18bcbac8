"""The rows that tables have when a stream starts, published before its changes."""

"""Files in the layout of Google's Datastream."""

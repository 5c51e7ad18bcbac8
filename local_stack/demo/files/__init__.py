"""The demo's scenario `datastream`: files as Google Datastream writes them, in place of Spanner."""

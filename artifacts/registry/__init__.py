"""A registry of artifacts: content-addressed, with versions, channels and a chained log."""

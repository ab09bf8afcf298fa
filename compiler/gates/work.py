"""Kinds of work that an artifact is timed with. Knows nothing of how it is done."""

SINGLE = "single"
"""A short text alone: what one client waits for."""
BATCH = "batch"
"""A full batch of passages: what many clients get done."""

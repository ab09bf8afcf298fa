"""Checkpoint in, artifact out. Never imported by the server."""

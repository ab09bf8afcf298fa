"""Artifact in, numbers out. Knows nothing of HTTP and never imports the compiler."""

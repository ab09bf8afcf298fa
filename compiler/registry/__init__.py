"""Commands on a registry of artifacts."""

"""Typed decisions: questions in, packed sequences and answers out, one file per protocol."""

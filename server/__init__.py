"""HTTP in, HTTP out. Knows nothing of tensors."""

"""What is known about model families, as data. Imports neither torch nor transformers."""

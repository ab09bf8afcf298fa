"""Linear layers in 8-bit numbers: weights ahead of time, activations while serving."""

"""Linear layers of bfloat16 numbers by an operator of our own, with packed weights."""

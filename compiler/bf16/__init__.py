"""Linear layers and normalisations of bfloat16 programs by operators of our own."""

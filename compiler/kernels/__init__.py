"""C++ sources of our own operators, and nothing else."""

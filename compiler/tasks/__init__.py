"""What is compiled for each kind of artifact: head, reference, and what post-processing needs."""

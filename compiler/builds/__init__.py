"""`infinity-compile build`: every model of a file, in parallel, and only what is not there yet."""

"""Lists of models compiled in one run, as a CI job does it."""

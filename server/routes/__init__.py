"""One file per route family."""

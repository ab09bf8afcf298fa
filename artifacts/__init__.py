"""The contract between compiler and server: what an artifact is, which target a host may run."""

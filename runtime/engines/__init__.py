"""One file per engine format; each imports its library only when it is used."""

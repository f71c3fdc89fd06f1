"""A small server on loopback that hears alerts and has the run they name diagnosed."""

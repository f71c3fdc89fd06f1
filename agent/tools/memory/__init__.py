"""What ran out of memory, what would fit, and what is held."""

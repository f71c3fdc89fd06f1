"""What was asked for, what was used, and what does not go together."""

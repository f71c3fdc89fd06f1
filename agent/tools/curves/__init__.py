"""What was measured and what is unusual about it."""

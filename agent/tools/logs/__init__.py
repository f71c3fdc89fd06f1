"""What the logs say and who says it."""

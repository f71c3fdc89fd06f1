"""What is unusual about a curve. Pure: series in, findings out; tools turn them into evidence."""

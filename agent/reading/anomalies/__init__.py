"""What is unusual about a curve, one file an idea. Pure: series in, findings out; tools turn them into evidence."""

"""What can be wrong with a checkpoint, from names and sizes to the numbers in it, and one word for each."""

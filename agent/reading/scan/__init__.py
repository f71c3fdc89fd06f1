"""Many patterns over all text in one pass: the engines, the literals before them, and the log pass itself."""

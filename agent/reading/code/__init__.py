"""The run's own code as syntax trees, and the patterns in it that are known to go wrong."""

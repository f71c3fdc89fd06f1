"""Recorded incidents, the runner and the scorers."""

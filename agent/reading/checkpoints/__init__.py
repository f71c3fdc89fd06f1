"""Saved states by their structure: which there are, what is in them, and how their numbers stand.

Nothing of them is executed or unpickled.
"""

"""What there is of a run: its files by role and name, their bytes and lines, and the workspace.

Imports nothing else of reading but scan, for the log pass that the workspace offers.
"""

"""Small programs that look at the machine as children of ours: what hangs in a driver hangs there.

Each has a time limit, prints one JSON object a line and flushes it, so that what was learned before a hang is not lost.
They import nothing of the house.
"""

"""A conversation about a run, whatever it is held through: a line at a time, or the chat on the whole screen.

Imports jobs and below. `tui` and `doctor chat --plain` both talk to this room; nothing here knows a screen.
"""

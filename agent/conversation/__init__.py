"""A conversation about a run, whatever it is held through: a line at a time, or the chat on the whole screen."""

"""A report as one self-contained web page: no script, nothing loaded, nothing of the run but inert text."""

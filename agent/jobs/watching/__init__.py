"""A job that somebody else runs, followed through its files: alarms, once each, with what they stand on."""

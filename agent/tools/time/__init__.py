"""Where processes stand and where the time goes."""

"""The chat in a browser: a server on this machine alone, behind a token."""

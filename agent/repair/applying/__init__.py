"""Patches to the user's own files: shown, asked about, written atomically with a journal, and undone."""

"""Readers of settings, one a form of text: tables, JSON and YAML, Python, shell, and what a log prints."""

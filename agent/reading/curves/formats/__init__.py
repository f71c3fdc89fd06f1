"""Metrics out of text: log lines, fixed layouts, tables and histories in JSON."""

"""Readers of metrics, one file a family: text lines, fixed layouts, tables, JSON histories."""

"""Whole datasets, record by record: text formats, columnar files, token files and archives, in bounded memory."""

"""The diagnostics, grouped as `reading` is; each thin over its readings, declared once, found by itself.

Tools import reading and below, never each other, the graph or an LLM library.

A tool's signature is its options, its validation and its schema (`tool.py`). `rehearsal` finds out what a tool would
run without running it, so that approvals can name it exactly.
"""

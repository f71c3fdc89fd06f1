"""How people and programs come in: the command line, coding agents by MCP, alerts by HTTP.

Imports everything below it, inside functions: `doctor --help` loads typer and little else. Nothing imports it.
"""

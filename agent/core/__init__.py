"""The ground that everything stands on: types, errors, the report, configuration, playbooks, the shell.

Imports nothing of the house but its own neighbours.
"""

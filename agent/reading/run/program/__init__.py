"""The program of a run as far as its text tells: syntax trees, commands that start it, what it imports and prints.

Imports the files and lines of the run; nothing is executed.
"""

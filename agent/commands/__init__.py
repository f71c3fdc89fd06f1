"""The commands of the command line, one file a group. Only typer is imported until a command runs."""

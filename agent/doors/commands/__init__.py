"""The commands of the command line. Only typer is imported until a command runs."""

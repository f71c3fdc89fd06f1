"""What there is of a run and what ran: files, lines, times, the workspace, and the part that each file plays.

`what_ran` is asked by every reader, and nobody guesses beside it: programs by the lines they printed, the modules they
reach, commands, configs, data, outputs, bystanders. Imports nothing else of reading but scan, for the log pass.
"""

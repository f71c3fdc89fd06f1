"""Measurements against the budgets of the design: `make bench`. Each file also runs alone and prints JSON."""

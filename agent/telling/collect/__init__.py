"""Bundles, bug reports and tickets: bounded pieces of a run's text, what it comes to, nothing secret.

Written beside its place and linked there at the end, so that it is whole or not there and overwrites nothing.
"""

"""Patterns in a run's own code that are known to go wrong, one module a domain.

A detector is a function `(Code, Project) -> Iterator[Hazard]` marked with `@detects("name", ...)`. A new one is
found by itself.
"""

"""Detectors of known mistakes in training code, one file a domain; each is found by itself.

A detector is a function `(Code, Project) -> Iterator[Hazard]` marked with `@detects("name", ...)`.
"""

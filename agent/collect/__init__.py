"""A bundle for whoever shall help: bounded pieces of a run's text, what it comes to, nothing secret; and two papers.

    <name>/README.md          how to read it and how to replay it
    <name>/manifest.json      what is in it, what was left out and why, how many secrets were taken out
    <name>/report/            the diagnosis as JSON and markdown, patches included
    <name>/incident.yaml      question and verdict: the bundle replays with `doctor eval`
    <name>/files/...          the run's own text; of long files the start, the parts that matter and the end
    <name>/shell.json         commands that were run and their answers, where the machine was asked
    <name>/traces.txt         every distinct error trace
    <name>/settings.json, environment.json, checkpoints.json
    <name>/series/*.csv       curves, thinned, whole around the event
    <name>/tools/*.json       what the diagnostics said of the machine
    <name>/machine/*.txt      versions and telling variables of the shell that collected

Written beside its place and linked there at the end, so that it is whole or not there and overwrites nothing.
"""

from .bundle import Bundle, collect

__all__ = ["Bundle", "collect"]

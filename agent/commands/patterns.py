"""The pattern databases, compiled before a diagnosis has to wait for them."""

from __future__ import annotations


def compile_patterns() -> int:
    """Compile what the log pass scans with into the cache; at once when that is current. Returns how many patterns."""
    from ..library import playbooks
    from ..reading.anchors import anchor_patterns
    from ..reading.logpass import signature_patterns
    from ..reading.patterns import scanner

    known = playbooks()
    patterns = [*signature_patterns(known), *anchor_patterns()]
    examples = "\n".join(line for p in known for s in p.signatures for line in s.matches[:1])
    scanner(patterns).scan(f"{examples}\n".encode())  # each database is made when it is first needed
    return len(patterns)

"""A cause that a user names: looked up, with what is near where there is none of that name."""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import UsageError


def known_cause(named: str) -> str:
    """The id of a cause.

    Raises:
        UsageError: there is none of that name; the hint has the nearest ones.
    """
    from ..library import playbooks
    from ..playbook import causes
    from ..sanitize import one_line

    every = dict.fromkeys([*causes(), *(p.cause for p in playbooks())])
    if named in every:
        return named
    wanted = named.strip().lower()
    slugs = {c.partition(".")[2]: c for c in every}
    near = get_close_matches(wanted, list(every), 3, 0.5)
    near += [slugs[s] for s in get_close_matches(wanted.rpartition(".")[2], list(slugs), 3, 0.6)]
    near += [c for c in every if wanted and wanted in c]
    hint = f"near it: {', '.join(dict.fromkeys(near[:4]))}" if near else "`doctor playbook list` has them all"
    raise UsageError(f"no cause is called {one_line(named)[:80]!r}", hint)

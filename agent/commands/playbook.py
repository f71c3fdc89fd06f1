"""`doctor playbook`: what doctor knows, whether it proves itself, and which causes it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer(help="Read and check the playbooks: one file for each failure mode.", no_args_is_help=True)


@app.command(name="list")
def listing(
    family: Annotated[str, typer.Argument(help="Only this family, such as `memory`.")] = "",
    json: options.Json = False,
) -> None:
    """List all playbooks with the cause each stands for."""
    from ..config import settle
    from ..library import playbooks
    from ..sanitize import one_line
    from .streams import print_json, print_line

    settle()
    found = [p for p in playbooks() if p.slug.startswith(f"{family}/") or not family]
    if json:
        print_json([{"slug": p.slug, "cause": p.cause, "title": p.title} for p in found])
        return
    width = max((len(p.slug) for p in found), default=0)
    for p in found:
        print_line(f"{p.slug:<{width}}  {one_line(p.title)}")


@app.command()
def show(slug: Annotated[str, typer.Argument(help="As `doctor playbook list` shows it, or a cause.")]) -> None:
    """Print a playbook as it stands in its file."""
    from pathlib import Path

    from ..config import settle
    from ..errors import UsageError
    from ..library import playbooks
    from ..sanitize import inert
    from .streams import print_line

    settle()
    found = [p for p in playbooks() if p.slug == slug] or [p for p in playbooks() if p.cause == slug]
    if not found:
        raise UsageError(f"no playbook {slug!r}", "`doctor playbook list` shows them")
    for p in found:
        print_line(inert(Path(p.path).read_text(encoding="utf-8")).rstrip())


@app.command()
def check(
    folder: Annotated[
        str, typer.Argument(help="A knowledge folder of your own.", show_default="the built-in one")
    ] = "",
) -> int:
    """Prove playbooks: examples, keys, causes, checks and repairs, by file and line. Exit code 1 when one fails.

    What is only incomplete is told too, and fails nothing.
    """
    from pathlib import Path

    from ..errors import UsageError
    from ..playbook import KNOWLEDGE
    from ..sanitize import one_line
    from .streams import print_line

    if folder and not Path(folder).is_dir():
        raise UsageError(f"no such folder: {folder}")
    number, wrong, lacking = _faults(Path(folder) if folder else KNOWLEDGE)
    for fault in wrong:
        print_line(one_line(fault))
    for gap in lacking:
        print_line(f"{one_line(gap)} (incomplete)")
    print_line(f"{number} playbooks, {len(wrong)} faults, {len(lacking)} gaps")
    return 1 if wrong else 0


def _faults(folder: Path) -> tuple[int, list[str], list[str]]:
    """How many playbooks a folder holds, what is wrong with them and what they lack; a broken one hides no other."""
    from ..errors import KnowledgeError
    from ..library import playbooks
    from ..playbook import KNOWLEDGE, parse, playbook_files
    from ..proofs import faults, gaps

    found, wrong = [], []
    paths = playbook_files(folder)
    for slug, path in paths:
        try:
            found.append(parse(path.read_text(encoding="utf-8"), slug, str(path)))
        except (KnowledgeError, OSError, UnicodeDecodeError) as e:
            wrong.append(str(e) if isinstance(e, KnowledgeError) else f"{path}:1: {e}")
    known = found if folder == KNOWLEDGE else [*found, *playbooks()]  # a team's own may name signatures of ours
    wrong += [fault for p in found for fault in faults(p, known)]
    return len(paths), wrong, [gap for p in found for gap in gaps(p)]


@app.command()
def new(
    cause: Annotated[str, typer.Argument(help="A cause, as `doctor playbook coverage --causes` lists them.")],
    slug: Annotated[str, typer.Argument(help="Name of the file.", show_default="that of the cause")] = "",
    folder: Annotated[
        str, typer.Option("--folder", help="Knowledge folder it goes into.", show_default="the first of yours")
    ] = "",
) -> None:
    """Begin a playbook: a file whose proofs fail until it is filled in."""
    import os
    from pathlib import Path

    from ..config import settle
    from ..errors import UsageError
    from ..playbook import causes
    from ..skeleton import skeleton
    from .streams import print_line

    own = settle().knowledge.split(os.pathsep)[0]
    if cause not in causes():
        raise UsageError(f"no cause {cause!r}", "`doctor playbook coverage --causes` lists them")
    family, _, name = cause.partition(".")
    if slug and not slug.replace("_", "").isalnum():
        raise UsageError(f"{slug!r} is no file name", "use lower-case letters, digits and underscores")
    where = Path(folder or own or "knowledge")
    path = where / family / f"{slug or name}.md"
    if path.exists():
        raise UsageError(f"{path} is there already", "give the new one a name: doctor playbook new CAUSE NAME")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(skeleton(cause), encoding="utf-8")
    print_line(str(path))
    print_line(f"Fill it in until this finds nothing: doctor playbook check {where}")


@app.command()
def coverage(
    json: options.Json = False,
    by_cause: Annotated[bool, typer.Option("--causes", help="List every cause with its playbooks.")] = False,
) -> int:
    """Say which causes have a playbook, and what the playbooks hold. Exit code 1 when a cause has none."""
    from ..config import settle
    from ..coverage import covered, table
    from ..library import playbooks
    from .streams import print_json, print_line

    settle()
    slugs = covered(playbooks())
    if json:
        print_json(slugs)
    elif by_cause:
        for cause, found in slugs.items():
            print_line(f"{cause:<32} {', '.join(found) or '-'}")
    else:
        for row in table(playbooks()):
            print_line(row)
    return 0 if all(slugs.values()) else 1

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
    """Prove playbooks: their examples, evidence keys, causes and checks. Exit code 1 when one fails."""
    from pathlib import Path

    from ..errors import UsageError
    from ..playbook import KNOWLEDGE
    from ..sanitize import one_line
    from .streams import print_line

    if folder and not Path(folder).is_dir():
        raise UsageError(f"no such folder: {folder}")
    number, wrong = _faults(Path(folder) if folder else KNOWLEDGE)
    for fault in wrong:
        print_line(one_line(fault))
    print_line(f"{number} playbooks, {len(wrong)} faults")
    return 1 if wrong else 0


def _faults(folder: Path) -> tuple[int, list[str]]:
    """How many playbooks a folder holds and all that is wrong with them; a broken one hides no other's faults."""
    from ..errors import KnowledgeError
    from ..playbook import parse
    from ..proofs import faults

    found, wrong = [], []
    paths = sorted(folder.glob("*/*.md"))
    for path in paths:
        try:
            slug = f"{path.parent.name}/{path.stem}"
            found.append(parse(path.read_text(encoding="utf-8"), slug, str(path)))
        except (KnowledgeError, OSError, UnicodeDecodeError) as e:
            wrong.append(str(e) if isinstance(e, KnowledgeError) else f"{path}:1: {e}")
    return len(paths), [*wrong, *(fault for p in found for fault in faults(p, found))]


@app.command()
def coverage(json: options.Json = False) -> None:
    """Say which causes have a playbook and which have none yet."""
    from ..config import settle
    from ..library import playbooks
    from ..playbook import causes
    from .streams import print_json, print_line

    settle()
    covered: dict[str, list[str]] = {cause: [] for cause in causes()}
    for p in playbooks():
        covered.setdefault(p.cause, []).append(p.slug)
    if json:
        print_json(covered)
        return
    families: dict[str, list[str]] = {}
    for cause in covered:
        families.setdefault(cause.split(".")[0], []).append(cause)
    for family, members in families.items():
        missing = [c.split(".", 1)[1] for c in members if not covered[c]]
        print_line(f"{family:<8} {len(members) - len(missing):>3} of {len(members):>3}" + (
            f"   without: {', '.join(missing)}" if missing else ""
        ))
    print_line(f"{'all':<8} {sum(map(bool, covered.values())):>3} of {len(covered):>3}")

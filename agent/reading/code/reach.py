"""Which lines of a program's sources came to run, as far as code and log tell.

reach = Reach(ran, program, sources, log)
reach.of("train.py", 40)    # NO, UNTOLD, PERHAPS or SURELY

A function runs that is referred to, by its plain name, from what the started source runs; a branch whose condition is
decided does not; and where a block prints a line without condition, the log has it or the block did not run.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from ..run.program.modules import Modules
from ..run.program.statements import Statement
from ..run.program.syntax import Function, Loop, Syntax, last
from ..run.what_ran import Program, Ran
from .conditions import NO, PERHAPS, SURELY, UNTOLD, Conditions
from .references import Body, References, Seen
from .subcommands import idle

_LONG = re.compile(r"train|fit|main|run|evaluat|valid|loop|learn|launch|spawn", re.IGNORECASE)
_NEAR, _ANCHOR = 8, 8  # statements between a line and one that prints; letters by which a print is looked for
_BROKEN = re.compile(r"\S\s\s+\S|\S\n\S")  # of fixed text that is not looked for as it stands
_DEEP = 60
_SLIPS = 3  # names that a module may use without binding them, and be whole


class Reach:
    """What of one program's sources ran.

    Args:
        sources: its sources by name.
        log: whether a text stands in the program's logs; None where they cannot be searched as a whole.
        failed: `(source, line)` of frames that a traceback names.
        decided: whether a condition of a source holds, where that is known.
        said: words of configs, commands and logs, in small letters.

    Attributes:
        whole: whether all of the program is at hand; of an excerpt only branches and prints can be told.
    """

    def __init__(
        self,
        ran: Ran,
        program: Program,
        sources: Mapping[str, Syntax],
        log: Callable[[str], bool] | None,
        failed: frozenset[tuple[str, int]] = frozenset(),
        decided: Callable[[str, ast.expr], bool | None] = lambda _source, _test: None,
        said: frozenset[str] = frozenset(),
    ) -> None:
        self._entry, self.sources, self._failed = program.file.name, sources, failed
        self._decided, self._said_there = decided, said
        self._words = frozenset(word for c in program.commands for word in c.arguments)
        cut = any(_is_excerpt(s, 0 if name == self._entry else _SLIPS) for name, s in sources.items())
        self.whole = not cut and self._entry in sources
        printed = ran.printed(program).statements if log is not None else []
        self._printed: dict[tuple[str, int], list[Statement]] = defaultdict(list)
        for statement in printed:
            self._printed[statement.file, statement.line].append(statement)
        self._log = log
        ended = len(program.logs) == 1  # else another log may be that of a run that did not fail
        self._dead = {
            name: [*self._untaken(name, s), *(self._behind_the_end(name, s) if ended else ())]
            for name, s in sources.items()
        }
        self._said: dict[tuple[str, int], bool | None] = {}
        self._levels: dict[str, bool] = {}
        self._shown = self._printed_lines()
        self._conditions = Conditions(sources, decided, self._shown)
        self._modules: dict[str, int] = {}
        self._runs = self._reached() if self.whole else {}

    def of(self, source: str, line: int, part: ast.AST | None = None) -> int:
        """Whether a line of a source ran, or a part of it: one side of `a if x else b`."""
        s = self.sources.get(source)
        if s is None or (source, line) in self._failed:
            return PERHAPS if s is None else SURELY
        if any(start <= line <= end for start, end in self._dead[source]):
            return NO
        node = _statement_at(s, line)
        if node is None:
            return PERHAPS
        if (told := self._told(source, s, node)) is not None:
            return told
        if not self.whole:
            return PERHAPS
        function = s.function_of(node)
        state = self._modules.get(source, NO) if function is None else self._runs.get(function, NO)
        if function is None:  # a field of a class is as much in use as the class
            state = min([state, *(self._runs.get(c, NO) for c in s.above(node) if isinstance(c, ast.ClassDef))])
        if state == NO and any(_spans(function, n) for f, n in self._failed if f == source):
            return PERHAPS
        return min(state, self._conditions.level(source, part or node)) if state > UNTOLD else state

    # ----------
    # By where the run ended.

    def _behind_the_end(self, source: str, s: Syntax) -> Iterator[tuple[int, int]]:
        """First and last lines of what bodies that run once still had before them where a failure ended the run."""
        ends: dict[Function | None, list[ast.stmt]] = defaultdict(list)
        for name, line in self._failed:
            if name == source and (node := _statement_at(s, line)) is not None:
                ends[s.function_of(node)].append(node)
        for body, nodes in ends.items():
            if len(nodes) == 1 and self._once(source, body):
                yield from _left(s, nodes[0])

    def _once(self, source: str, body: Function | None, deep: int = 0) -> bool:
        """Whether a body runs once: that of a module, or of a function named by one line of a body that runs once."""
        if body is None:
            return True
        s = self.sources[source]
        named = [n for n in s.every(ast.Name, ast.Attribute) if last(n) == body.name]
        others = [o for name, o in self.sources.items() if name != source]
        if len(named) != 1 or deep > _DEEP or any(_may_use(o, body.name) for o in others):
            return False
        around = s.function_of(named[0])
        loops = any(isinstance(a, Loop) for a in _up_to(s, named[0], around))
        return not loops and around is not body and self._once(source, around, deep + 1)

    # ----------
    # By conditions that are decided.

    def _untaken(self, source: str, s: Syntax) -> Iterator[tuple[int, int]]:
        """First and last lines of branches that are not taken."""
        for n in s.every(ast.If, ast.While):
            started = source == self._entry or not _is_start(n.test)
            holds = self._decided(source, n.test) if started else False
            part = n.body if holds is False else n.orelse if holds and isinstance(n, ast.If) else []
            if part:
                yield part[0].lineno, part[-1].end_lineno or part[-1].lineno

    # ----------
    # By references from what runs.

    def _reached(self) -> dict[ast.AST, int]:
        """Every function that runs, and every class that is used, perhaps or surely."""
        functions = [(name, s, f) for name, s in self.sources.items() for f in s.functions]
        classes = {c.name: (name, c) for name, s in self.sources.items() for c in s.every(ast.ClassDef)}
        references = References(self.sources, self._dead, self._conditions)
        seen = Seen(
            classes, frozenset(idle(self.sources, self._words, self._said_there, self._in_frame)), self._said_there
        )
        found: dict[ast.AST, int] = {}
        bodies = self._run_modules(references, {})
        if not self._acts():  # a console script calls one of its functions
            called = dict.fromkeys(((self._entry, f.name) for f in self.sources[self._entry].functions), SURELY)
            bodies.append((Body(called), PERHAPS))
        for _ in range(_DEEP):
            for body, state in bodies:
                seen.add(body, state)
            bodies = []
            for source, s, f in functions:
                state = SURELY if any(_spans(f, n) for n in self._shown.get(source, ())) else seen.state(source, s, f)
                if state > found.get(f, NO) and not any(a <= f.lineno <= b for a, b in self._dead[source]):
                    found[f] = state
                    bodies.append((references.of(source, f), state))
            bodies += self._run_modules(references, found)
            if not bodies:
                break
        for source, s in self.sources.items():
            found.update((c, seen.made(source, c, heirs_count=SURELY)) for c in s.every(ast.ClassDef))
        return found

    def _run_modules(self, references: References, runs: Mapping[ast.AST, int]) -> list[tuple[Body, int]]:
        """Bodies of modules that came to run, or did so more surely: those started, and those that code imports."""
        news: list[tuple[Body, int]] = []
        for source, s in self.sources.items():
            states = [
                min(level, self._modules.get(by, NO) if f is None else runs.get(f, NO))
                for by, f, level in self._importers.get(source, ())
            ]
            started = source == self._entry or source not in self._importers
            state = SURELY if started else max(states, default=NO)
            if state > self._modules.get(source, NO):
                self._modules[source] = state
                news += [(references.of(source, tree), state) for tree in s.trees]
        return news

    @cached_property
    def _importers(self) -> dict[str, list[tuple[str, Function | None, int]]]:
        """For each source the statements that import it: their source, the function around, whether it comes to them.

        Imports for the eyes of type checkers are none: what is offered so is loaded by its name.
        """
        modules = Modules(self.sources, lambda _name: None)
        found: dict[str, list[tuple[str, Function | None, int]]] = defaultdict(list)
        for name, s in self.sources.items():
            for n in s.every(ast.Import, ast.ImportFrom):
                typing = any(isinstance(b, ast.If) and last(b.test) == "TYPE_CHECKING" for b in s.above(n))
                dead = any(a <= n.lineno <= b for a, b in self._dead[name])
                level = NO if dead else self._conditions.level(name, n)
                for other in modules.of_statement(n, name, self._entry) - {name}:
                    found[other] += [] if typing else [(name, s.function_of(n), level)]
        return found

    def _in_frame(self, source: str, node: ast.AST) -> bool:
        return any(name == source and _spans(node, line) for name, line in self._failed)

    def _acts(self) -> bool:
        """Whether the started source calls something of its own when it is run; else a console script calls into it."""
        s = self.sources[self._entry]
        return any(s.function_of(c) is None and not isinstance(s.parents.get(c), ast.Assign) for c in s.calls)

    # ----------
    # By what the log says and does not say.

    def _told(self, source: str, s: Syntax, node: ast.stmt) -> int | None:
        """What the prints around a statement tell: those of its own block, and of the blocks around it."""
        inner: ast.AST = node
        while (above := s.parents.get(inner)) is not None and not isinstance(above, ast.Module):
            block = next((b for b in _blocks(above) if any(n is inner for n in b)), [])
            at = next((number for number, n in enumerate(block) if n is inner), 0)
            for number, other in enumerate(block):
                said = self._says(source, other) if number <= at or _straight(block[at:number]) else None
                if said and inner is node:
                    return SURELY
                if said is False and self._would_be_seen(source, block, above, number > at):
                    return NO
            inner = above
        return None

    def _would_be_seen(self, source: str, block: list[ast.stmt], above: ast.AST, later: bool) -> bool:
        """Whether a block that ran had its line in the log: no failure ended it first, and the program came further."""
        if isinstance(above, Loop) or any(_spans(above, n) for f, n in self._failed if f == source):
            return False
        return not later or self._got_beyond(source, block)

    def _says(self, source: str, statement: ast.stmt) -> bool | None:
        """Whether the log has what a statement prints; None where it prints nothing that could be missed."""
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            return None
        key = (source, call.lineno)
        if key not in self._said:
            self._said[key] = self._look_up(source, call)
        return self._said[key]

    def _look_up(self, source: str, call: ast.Call) -> bool | None:
        made = self._printed.get((source, call.lineno), [])
        if not made or any(k.arg == "file" for k in call.keywords) or made[0].level == "debug":
            return None
        if any(len(st.anchor) < _ANCHOR or any(_BROKEN.search(t) for t, _ in st.pieces if t) for st in made):
            return None
        if any(self._stands(st) for st in made):
            return True
        return False if self._shows(made[0].level) else None

    def _shows(self, level: str) -> bool:
        """Whether the log has anything that is printed in the same way: by `print`, or at this level of a logger."""
        if level not in self._levels:
            all_made = (st for statements in self._printed.values() for st in statements if st.level == level)
            self._levels[level] = any(map(self._stands, all_made))
        return self._levels[level]

    def _printed_lines(self) -> dict[str, list[int]]:
        """For each source the lines whose print stands in the log, where no other line prints the same."""
        by_text: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for (source, line), made in self._printed.items():
            for statement in made:
                by_text[statement.anchor].add((source, line))
        found: dict[str, list[int]] = defaultdict(list)
        for (source, line), made in self._printed.items():
            if all(len(by_text[st.anchor]) == 1 for st in made) and any(map(self._stands, made)):
                found[source].append(line)
        return found

    def _got_beyond(self, source: str, block: list[ast.stmt]) -> bool:
        """Whether the log has what is printed further down in the source than a block."""
        end = block[-1].end_lineno or block[-1].lineno
        later = (made for (name, line), made in self._printed.items() if name == source and line > end)
        return any(self._stands(st) for made in later for st in made)

    def _stands(self, statement: Statement) -> bool:
        return self._log is not None and len(statement.anchor) >= _ANCHOR and self._log(statement.anchor)


def _is_excerpt(s: Syntax, slips: int) -> bool:
    """Whether a source uses more names than may be slips that it nowhere binds: it was cut out of a longer one."""
    if s.unparsed or len(s.trees) > 1:
        return True
    if any(a.name == "*" for n in s.every(ast.ImportFrom) for a in n.names) or s.calls_of("exec", "globals"):
        return False
    bound = {n.id for n in s.every(ast.Name) if not isinstance(n.ctx, ast.Load)} | set(dir(builtins))
    bound |= {n.name for n in s.every(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)}
    bound |= {a.arg for a in s.every(ast.arg)} | {n.name for n in s.every(ast.ExceptHandler) if n.name}
    bound |= {(a.asname or a.name).split(".")[0] for n in s.every(ast.Import, ast.ImportFrom) for a in n.names}
    bound |= {n.name or "" for n in s.every(ast.MatchAs, ast.MatchStar)}
    bound |= {n.rest or "" for n in s.every(ast.MatchMapping)}
    bound |= {"__file__", "__name__", "__doc__", "__class__", "__path__", "__package__"}
    return len({n.id for n in s.every(ast.Name) if isinstance(n.ctx, ast.Load)} - bound) > slips


def _statement_at(s: Syntax, line: int) -> ast.stmt | None:
    """The innermost statement on a line."""
    best: ast.stmt | None = None
    for tree in s.trees:
        level: list[ast.stmt] = list(tree.body)
        while level:
            inside = next((n for n in level if _first(n) <= line <= (n.end_lineno or n.lineno)), None)
            if inside is None:
                break
            best = inside
            level = [n for block in _blocks(inside) for n in block]
    return best


def _left(s: Syntax, end: ast.stmt) -> list[tuple[int, int]]:
    """First and last lines of what stands behind a statement in the blocks around it, but not of loops and `try`."""
    found: list[tuple[int, int]] = []
    inner: ast.AST = end
    for above in s.above(end):
        if isinstance(above, Loop | ast.Try):
            found = []
        else:
            block = next((b for b in _blocks(above) if any(n is inner for n in b)), [])
            later = block[next((i for i, n in enumerate(block) if n is inner), len(block)) + 1 :]
            found += [(later[0].lineno, later[-1].end_lineno or later[-1].lineno)] if later else []
        if isinstance(above, Function):
            break
        inner = above
    return found


def _may_use(s: Syntax, name: str) -> bool:
    """Whether another source imports a function of that name, or asks a module or an object for one."""
    imported = any(a.name == name for n in s.every(ast.ImportFrom) for a in n.names)
    return imported or any(n.attr == name for n in s.every(ast.Attribute))


def _up_to(s: Syntax, node: ast.AST, body: ast.AST | None) -> Iterator[ast.AST]:
    """What stands around a node, up to a body."""
    for n in s.above(node):
        if n is body:
            return
        yield n


def _first(n: ast.stmt) -> int:
    return min([n.lineno, *(d.lineno for d in getattr(n, "decorator_list", []))])


def _blocks(n: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(n, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(n, "handlers", []):
        yield handler.body
    for case in getattr(n, "cases", []):
        yield case.body


def _straight(block: list[ast.stmt]) -> bool:
    """Whether statements run through to their end at once: no loop, no way out, nothing that takes the whole run."""
    if len(block) > _NEAR:
        return False
    for n in (inner for statement in block for inner in ast.walk(statement)):
        if isinstance(n, Loop | ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Yield | ast.With):
            return False
        if isinstance(n, ast.Call) and _LONG.search(last(n.func)):
            return False
    return True


def _is_start(test: ast.expr) -> bool:
    """Whether a test is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and "__name__" in (last(test.left), *(last(c) for c in test.comparators))


def _spans(n: ast.AST | None, line: int) -> bool:
    return n is not None and getattr(n, "lineno", 0) <= line <= (getattr(n, "end_lineno", 0) or 0)

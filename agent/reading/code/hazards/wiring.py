"""How model, optimizer and adapters are wired: what is trainable, what the optimizer holds, what is shared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from ...run.program.syntax import Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import OPTIMIZERS, Code, Hazard, Project, detects

_ASIDE = re.compile(
    r"ref|teacher|vae|text_enc|encoder|target|frozen|ema|backbone|feature|clip|disc|critic|base|old", re.I
)
_WRAPS = frozenset({"FSDP", "FullyShardedDataParallel", "fully_shard", "get_peft_model", "resize_token_embeddings"})
_UNFREEZES = ("get_peft_model", "add_adapter", "requires_grad_(True)", "requires_grad = True", "requires_grad=True",
              "prepare_model_for", "LoraConfig", "inject_adapter")  # fmt: skip
_TAKES = re.compile(
    r"Trainer$|^(?:DistributedDataParallel|DDP|FSDP|FullyShardedDataParallel|prepare|initialize|setup|fit)$"
)
_PAD = re.compile(r"[!=]= ?[\w.]*pad_token(?:_id)?\b")  # labels are masked by it
_KEPT = re.compile(r"^(best|old|prev|previous|init|initial|saved|backup|ema|snapshot)", re.IGNORECASE)


@detects("optimizer_before_wrap")
def too_early(code: Code, project: Project) -> Iterator[Hazard]:
    """An optimizer takes the parameters of a model that is sharded, adapted or resized afterwards."""
    s = code.syntax
    for made in s.calls:
        given = made.args[0] if made.args else keyword(made, "params")
        if not OPTIMIZERS.match(last(made.func)) or given is None:
            continue
        models = {dotted(receiver(c)) for c in walk(given) if isinstance(c, ast.Call) and "parameters" in last(c.func)}
        scope = s.scope_of(made)
        for wrap in walk(scope, into_functions=False):
            if not isinstance(wrap, ast.Call) or last(wrap.func) not in _WRAPS or wrap.lineno <= made.lineno:
                continue
            on = {dotted(receiver(wrap)), *(dotted(a) for a in wrap.args[:1])}
            if models & on and not _made_again(s, made, wrap, scope):
                yield Hazard("optimizer_before_wrap", made.lineno, last(wrap.func))
                yield Hazard("optimizer_before_wrap", wrap.lineno, last(wrap.func))


def _made_again(s: Syntax, first: ast.Call, wrap: ast.Call, scope: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and OPTIMIZERS.match(last(n.func)) and n.lineno > wrap.lineno for n in walk(scope)
    )  # fmt: skip


@detects("params_frozen", "requires_grad_false")
def frozen(code: Code, project: Project) -> Iterator[Hazard]:
    """Parameters are switched off and nothing in the file switches any on again."""
    s = code.syntax
    if code.mentions(*_UNFREEZES):
        return
    trains = code.mentions("optim", "Trainer", "backward")
    for line, owner in _freezes(s):
        if owner == "self" or (owner.startswith("self.") and not trains):
            continue  # a method that offers to freeze does not say that it is called
        if "." not in owner and not _is_trained(s, owner):
            continue  # a teacher or a reference beside what is trained
        yield Hazard("requires_grad_false", line, owner)
        if trains and owner.split(".")[-1] in ("model", "net", "network", "unet") and not _ASIDE.search(owner):
            yield Hazard("params_frozen", line, owner)


def _is_trained(s: Syntax, name: str) -> bool:
    """Whether what goes by a name is given to an optimizer, a trainer or a wrapper, or called nothing but the model."""
    if name in ("model", "net", "network", "unet"):
        return True
    takers = (c for c in s.calls if OPTIMIZERS.match(last(c.func)) or _TAKES.search(last(c.func)))
    given = (n for c in takers for a in (*c.args, *(k.value for k in c.keywords)) for n in walk(a))
    return any(isinstance(n, ast.Name) and n.id == name for n in given)


def _freezes(s: Syntax) -> Iterator[tuple[int, str]]:
    """Unconditional `x.requires_grad_(False)` and `for p in x.parameters(): p.requires_grad = False`."""
    for call in s.calls_of("requires_grad_"):
        if call.args and constant(call.args[0]) is False and not isinstance(s.loop_of(call), ast.For):
            above = s.parents.get(call)
            kept = above.targets[0] if isinstance(above, ast.Assign) else None
            made = isinstance(receiver(call), ast.Call)  # a new object, called by the name that it is given
            yield (
                call.lineno,
                dotted(kept)
                if kept is not None and (made or isinstance(kept, ast.Attribute))
                else dotted(receiver(call)),
            )
    for loop in s.every(ast.For):
        source = loop.iter
        if not isinstance(source, ast.Call) or "parameters" not in last(source.func):
            continue
        for n in loop.body:
            off = isinstance(n, ast.Assign) and last(n.targets[0]) == "requires_grad" and constant(n.value) is False
            called = (
                isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and last(n.value.func) == "requires_grad_"
            )
            if off or called:
                yield n.lineno, _owner(s, receiver(source), loop)


def _owner(s: Syntax, held: ast.expr | None, loop: ast.For) -> str:
    """What parameters are taken of; of each part of something, that: `for layer in model.layers`."""
    around = (a for a in s.above(loop) if isinstance(a, ast.For) and isinstance(held, ast.Name))
    taken = next((a.iter for a in around if last(a.target) == last(held)), None)
    if isinstance(taken, ast.Call):
        taken = (
            taken.args[0] if last(taken.func) in ("reversed", "list", "enumerate") and taken.args else receiver(taken)
        )
    return dotted(taken) if taken is not None else dotted(held)


@detects("lora_target")
def adapters(code: Code, project: Project) -> Iterator[Hazard]:
    """Which modules adapters are attached to."""
    for call in code.syntax.calls_of("LoraConfig"):
        targets = code.syntax.argument(call, "target_modules")
        if targets is not None:
            try:
                value = ast.literal_eval(targets)
            except (ValueError, TypeError, RecursionError):
                value = True
            shown = sorted(map(str, value)) if isinstance(value, list | tuple | set) else value
            yield Hazard("lora_target", targets.lineno, shown)


@detects("tensor_view_shared")
def shared(code: Code, project: Project) -> Iterator[Hazard]:
    """A state is kept for later as a view of tensors that training goes on changing."""
    s = code.syntax
    for n in s.every(ast.Assign):
        kept = last(n.targets[0])
        if not _KEPT.match(kept) or not (_is_live_state(n.value) or dotted(n.value).split(".")[-1] in _MODELS):
            continue
        if any(isinstance(a, ast.For | ast.While | ast.If) for a in s.above(n)) and code.mentions("backward", "train("):
            yield Hazard("tensor_view_shared", n.lineno, kept)
    for n in s.every(ast.Assign):
        alias = last(n.targets[0])
        if re.fullmatch(r"(self\.)?(ref|reference|ema|old|target)_?(model|policy|net)", dotted(n.targets[0])) and (
            isinstance(n.value, ast.Name | ast.Attribute) and re.search(r"model$|policy$|net$", last(n.value))
            and last(n.value) != alias and dotted(n.value).split(".")[-1] in _MODELS
        ):  # fmt: skip
            yield Hazard("tensor_view_shared", n.lineno, alias)


_MODELS = ("model", "policy", "net", "actor")


def _is_live_state(value: ast.expr) -> bool:
    """Whether a value is `x.state_dict()`, or its tensors as they are in a new dict."""
    if isinstance(value, ast.DictComp):
        source = value.generators[0].iter
        plain = isinstance(value.value, ast.Name)
        return plain and isinstance(source, ast.Call) and _is_live_state(receiver(source) or source)
    return isinstance(value, ast.Call) and last(value.func) == "state_dict"


@detects("reentrant_checkpoint")
def reentrant(code: Code, project: Project) -> Iterator[Hazard]:
    """Reentrant activation checkpointing, asked for or by default."""
    for call in code.syntax.calls_of("checkpoint", "gradient_checkpointing_enable", "checkpoint_sequential"):
        chosen = keyword(call, "use_reentrant")
        options = [keyword(call, "gradient_checkpointing_kwargs")]
        options += call.args[:1] if last(call.func) == "gradient_checkpointing_enable" else []
        text = " ".join(ast.dump(o) for o in options if o is not None)
        if constant(chosen) is True or ("use_reentrant" in text and "value=True" in text):
            yield Hazard("reentrant_checkpoint", call.lineno, True)
        elif last(call.func) == "checkpoint" and chosen is None and len(call.args) >= 2 and code.mentions(
            "torch.utils.checkpoint"
        ):  # fmt: skip
            yield Hazard("reentrant_checkpoint", call.lineno, "by default")


@detects("pad_is_eos", "labels_unmasked")
def padding(code: Code, project: Project) -> Iterator[Hazard]:
    """Padding that shares the end token while labels are masked by it, or padding that is never masked."""
    s = code.syntax
    masked = project.mentions("DataCollatorForLanguageModeling") or any(_PAD.search(c.source) for c in project.codes)
    for n in s.every(ast.Assign):
        if (
            last(n.targets[0]) in ("pad_token", "pad_token_id")
            and last(n.value) in ("eos_token", "eos_token_id")
            and masked
        ):
            yield Hazard("pad_is_eos", n.lineno, True)
    padded = code.mentions('padding="max_length"', "padding='max_length'", "padding=True")
    if not padded or project.mentions(
        "-100", "ignore_index", "DataCollatorFor", "CompletionOnly", "train_on_responses"
    ):
        return
    for n in s.every(ast.Assign):
        key = n.targets[0]
        named = constant(key.slice) if isinstance(key, ast.Subscript) else last(key)
        copied = isinstance(n.value, ast.Call) and last(n.value.func) in ("copy", "clone", "deepcopy")
        copied = copied or (isinstance(n.value, ast.Attribute) and n.value.attr == "input_ids")
        if named == "labels" and copied and "input_ids" in ast.dump(n.value):
            yield Hazard("labels_unmasked", n.lineno, True)


@detects("eval_logits_kept", needs=("memory_short",))
def logits_kept(code: Code, project: Project) -> Iterator[Hazard]:
    """An HF trainer computes metrics and so keeps the logits of the whole evaluation set on the device."""
    if project.mentions("preprocess_logits_for_metrics", "eval_accumulation_steps", "prediction_loss_only"):
        return
    for call in code.syntax.calls:
        given = keyword(call, "compute_metrics")
        if given is None or (constant(given) is None and isinstance(given, ast.Constant)):
            continue
        if last(call.func).endswith("Trainer") and not last(call.func).startswith("Seq2Seq"):
            yield Hazard("eval_logits_kept", given.lineno, last(call.func))
            for run in code.syntax.calls_of("evaluate"):
                if "trainer" in last(receiver(run)).lower():
                    yield Hazard("eval_logits_kept", run.lineno, "evaluate")


@detects("compiled_counter")
def counters(code: Code, project: Project) -> Iterator[Hazard]:
    """A Python number of a module changes in every call, so that compiled code is specialized again and again."""
    if not project.mentions("torch.compile", "torchdynamo", "TORCH_LOGS"):
        return
    s = code.syntax
    for n in (*s.every(ast.AugAssign), *(a for a in s.every(ast.Assign) if _counts_up(a))):
        target = n.target if isinstance(n, ast.AugAssign) else n.targets[0]
        function = s.function_of(n)
        called = function is not None and function.name in ("forward", "update", "step", "__call__")
        if called and dotted(target).startswith("self.") and not {"no_grad", "tensor"} & names(n.value):
            yield Hazard("compiled_counter", n.lineno, dotted(target))


def _counts_up(n: ast.Assign) -> bool:
    """`self.step = self.step + 1`."""
    value = n.value
    return isinstance(value, ast.BinOp) and dotted(value.left) == dotted(n.targets[0]) != ""


# ----------
# Parts of a model that no optimizer holds: they are used in every step and keep their first random weights.

_WEIGHTS = re.compile(
    r"^(?:Lazy)?(?:Linear|Bilinear|Conv(?:Transpose)?[123]d|Embedding(?:Bag)?|LSTM|GRU|RNN|(?:Batch|Instance)Norm[123]d"
    r"|LayerNorm|RMSNorm|GroupNorm|MultiheadAttention|Transformer\w*)$"
)
_HOLDERS = ("Sequential", "ModuleList", "ModuleDict")
# Left out on purpose: what is pretrained and kept, copied from another, or fixed at random.
_LEFT_OUT_KEPT = re.compile(
    r"(?i)ref|teacher|vae|text_?enc|encoder|target|frozen|fixed|ema|momentum|shadow|backbone|base|body|trunk|feature"
    r"|pretrain|clip|lpips|perceptual|old|random|fourier|hash|codebook"
)
_GATHER = ("parameters", "named_parameters")
_MEASURES = ("sum", "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "print", "any", "all", "len")
_MOVES = ("to", "cuda", "cpu", "train", "float", "double", "half", "bfloat16")
# Ways to gather weights that tell no names: then nothing can be said.
_UNNAMED = ("getattr", "vars", "children", "named_children", "modules", "named_modules", "chain", "state_dict")


@detects("optimizer_leaves_out")
def left_out(code: Code, project: Project) -> Iterator[Hazard]:
    """An optimizer is given parts of a model by name, and another fresh part that the model uses is in none."""
    classes = project.once("classes with weights", lambda: _classes(project))
    s = code.syntax
    seen: set[ast.AST] = set()
    for made in s.calls:
        scope = s.scope_of(made)
        if not OPTIMIZERS.match(last(made.func)) or not (made.args or made.keywords) or scope in seen:
            continue
        seen.add(scope)
        for owner, given in _given(s, scope).items():
            model = _class_of(s, made, scope, owner, classes)
            if model is None or _unclear(scope, owner) or _loaded(s, owner):
                continue
            for part in sorted(_fresh(model, classes) - given):
                if not _LEFT_OUT_KEPT.search(part) and _used(model, part) and not _elsewhere(project, scope, part):
                    yield Hazard("optimizer_leaves_out", made.lineno, part)


def _classes(project: Project) -> dict[str, ast.ClassDef]:
    return {c.name: c for code in project.codes for c in code.syntax.every(ast.ClassDef)}


def _given(s: Syntax, scope: ast.AST) -> dict[str, set[str]]:
    """By the name of a model: its parts whose parameters are asked for in a scope, but for counts and norms of all."""
    found: dict[str, set[str]] = {}
    for call in walk(scope):
        if not isinstance(call, ast.Call) or last(call.func) not in _GATHER:
            continue
        around = (n for n in s.above(call) if isinstance(n, ast.Call | ast.stmt))
        if any(isinstance(n, ast.Call) and last(n.func) in _MEASURES for n in takewhile(_in_statement, around)):
            continue
        owner, _, part = dotted(receiver(call)).partition(".")
        found.setdefault(owner, set()).add(part.partition(".")[0])
    return {owner: parts for owner, parts in found.items() if owner and "" not in parts}


def _in_statement(node: ast.AST) -> bool:
    return not isinstance(node, ast.stmt)


def _class_of(s: Syntax, made: ast.Call, scope: ast.AST, owner: str, classes: dict) -> ast.ClassDef | None:
    """The class of the model that goes by a name where an optimizer is made."""
    if owner == "self":
        return next((n for n in s.above(made) if isinstance(n, ast.ClassDef)), None)
    values = s.assigned(owner, scope)
    if len(values) != 1 or not isinstance(values[0], ast.Call):
        return None
    value: ast.expr | None = values[0]
    while isinstance(value, ast.Call) and last(value.func) in _MOVES:
        value = receiver(value)
    return classes.get(last(value.func)) if isinstance(value, ast.Call) else None


def _unclear(scope: ast.AST, owner: str) -> bool:
    """Whether weights may also come by a way that names no part: a helper of the model, its modules, its attributes."""
    for call in walk(scope):
        if not isinstance(call, ast.Call):
            continue
        if last(call.func) in _UNNAMED or last(call.func) == "add_param_group":
            return True
        if owner == "self" and dotted(call.func).count(".") == 1 and dotted(call.func).startswith("self."):
            return True
    return False


def _loaded(s: Syntax, owner: str) -> bool:
    """Whether the whole model takes saved weights, not merely where a run is resumed: then no part of it is fresh."""
    return any(
        dotted(receiver(call)) == owner and not s.guarded(call, s.scope_of(call))
        for call in s.calls_of("load_state_dict")
    )


def _fresh(model: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Attributes that are made with new weights and not switched off again in the class."""
    found: set[str] = set()
    for n in walk(model):
        if not isinstance(n, ast.Assign) or not dotted(n.targets[0]).startswith("self."):
            continue
        part = dotted(n.targets[0]).removeprefix("self.")
        if "." not in part and _has_weights(n.value, classes):
            found.add(part)
    off = {
        dotted(receiver(c)).removeprefix("self.").partition(".")[0]
        for c in walk(model)
        if isinstance(c, ast.Call) and last(c.func) in ("requires_grad_", "eval", "load_state_dict", "detach")
    }
    for loop in walk(model):  # for p in self.part.parameters(): p.requires_grad = False
        if isinstance(loop, ast.For) and "requires_grad" in ast.dump(loop):
            off |= {n.attr for n in walk(loop.iter) if isinstance(n, ast.Attribute)}
    return found - off - _shared(model)


def _shared(model: ast.ClassDef) -> set[str]:
    """Attributes that go into another one as well, or share their weights with it: whoever holds that holds both."""
    found: set[str] = set()
    for n in walk(model):
        if isinstance(n, ast.Assign) and dotted(n.targets[0]).startswith("self."):
            inside = [a for a in walk(n.value) if isinstance(a, ast.Attribute) and dotted(a).startswith("self.")]
            target = [n.targets[0]] if dotted(n.targets[0]).count(".") > 1 else []
            found |= {dotted(a).split(".")[1] for a in (*inside, *target)}
        elif isinstance(n, ast.Call) and last(n.func) in ("append", "extend", "add_module", "register_module"):
            found |= {dotted(a).split(".")[1] for a in n.args if dotted(a).startswith("self.")}
    return found


def _has_weights(value: ast.expr, classes: dict[str, ast.ClassDef], depth: int = 0) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = last(value.func)
    if _WEIGHTS.match(name):
        return True
    if name in _HOLDERS:
        return any(isinstance(n, ast.Call) and _WEIGHTS.match(last(n.func)) for a in value.args for n in walk(a))
    own = classes.get(name)
    return own is not None and depth < 2 and any(
        isinstance(n, ast.Assign) and dotted(n.targets[0]).startswith("self.")
        and _has_weights(n.value, classes, depth + 1)
        for n in walk(own)
    )  # fmt: skip


def _used(model: ast.ClassDef, part: str) -> bool:
    """Whether the model calls the part outside of its making."""
    return any(
        isinstance(n, ast.Call) and dotted(n.func) == f"self.{part}"
        for method in model.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__"
        for n in walk(method)
    )


def _elsewhere(project: Project, scope: ast.AST, part: str) -> bool:
    """Whether the part's weights are asked for, loaded or switched off outside of the model's class."""
    inside = set(walk(scope))
    for code in project.codes:
        for call in code.syntax.calls_of(*_GATHER, "load_state_dict", "requires_grad_", "weight", "copy_"):
            if call not in inside and part in dotted(receiver(call)).split("."):
                return True
    return any(isinstance(n, ast.Attribute) and n.attr == part for n in inside)

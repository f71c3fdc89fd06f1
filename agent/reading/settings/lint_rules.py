"""Arithmetic on settings: batch sizes, parallel sizes, divisibility. Only where every number is known."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from ...core.errors import ParseError
from ..run.files import Line, RunFile
from .forms.settings_files import head
from .settings import Setting, Settings

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Lints that need more than one condition: where a setting stands, in which command, beside which data.


_DEVICE = re.compile(r"^cuda(?::\d+)?$")
_HARD_DEVICE = re.compile(r"""\.cuda\(\s*0\s*\)|['"]cuda:0['"]|set_device\(\s*0\s*\)""")
_PORT_TAKERS = ("master_port", "rendezvous_endpoint", "standalone")
_NUMBERS_NODES = ("node_rank", "rendezvous_endpoint", "rendezvous_backend")
_COUNTS_ITSELF = re.compile(
    r"(?i)\btorchrun\b|torch\.distributed\.(?:run|launch)\b|force_torchrun|\bswift (?:sft|pt|rlhf)\b"
)


@dataclass(frozen=True, slots=True)
class Lint:
    """A fact about settings, with the lines it stands on (none where it is an absence), and what it needs of the run.

    `needs` are names of `reading.code.circumstances.NEEDS`: of what the run was, as hazards in code have them.
    """

    rule: str
    says: str
    lines: list[tuple[RunFile, Line]] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    needs: tuple[str, ...] = ()


def place_lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of this module."""
    mine = [s for s in reading.all if not s.file.good]
    yield from _processes(mine)
    yield from _devices(ws, reading, mine)
    yield from _clipping(reading, mine)
    yield from _two_places(mine)
    given = [*mine, *(s for s in reading.open if not s.file.good)]  # a port that a variable holds is one
    yield from _ports(given)
    yield from _unnumbered_nodes(given)
    for file, key, first, second in reading.duplicates[:20]:
        if not file.good:
            yield Lint(
                "duplicate_key",
                f"{key} is given twice, on lines {first.number} and {second.number}",
                [(file, second), (file, first)],
            )


def lint_at(rule: str, says: str, *settings: Setting) -> Lint:
    """A lint that stands on the lines of settings."""
    return Lint(rule, says, [(s.file, s.line) for s in settings])


def named(settings: list[Setting], name: str) -> list[Setting]:
    """What was asked for under a canonical name."""
    return [s for s in settings if s.name == name and not s.used]


def whole(s: Setting) -> int | None:
    """A whole positive number below ten million, or None."""
    return s.value if isinstance(s.value, int) and not isinstance(s.value, bool) and 0 < s.value < 10**7 else None


def _processes(mine: list[Setting]) -> Iterator[Lint]:
    """More processes a node than devices that the same command can see."""
    for visible in named(mine, "visible_devices"):
        devices = visible.value
        if not isinstance(devices, list) or not all(re.match(r"[\w.:\-/]+\Z", str(d)) for d in devices):
            continue
        names = ("processes_per_node", "local_world_size", "world_size")
        starts = [s for name in names for s in named(mine, name) if s.file == visible.file]
        same = [s for s in starts if s.group == visible.group] or (
            starts if visible.place.style != "environment" or len(starts) == 1 else []
        )
        for s in same:
            count = whole(s)
            if count and count > len(devices) and (s.name != "world_size" or len(devices) > 0):
                says = f"{count} processes are started, {len(devices)} devices are visible ({visible.key})"
                yield lint_at("processes_exceed_visible_gpus", says, visible, s)


def _devices(ws: Workspace, reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """One fixed device in code or config, and several processes."""
    several = [s for n in ("processes_per_node", "world_size") for s in named(mine, n) if (whole(s) or 0) > 1]
    if not several:
        return
    for s in named(mine, "device"):
        if re.match(r"cuda:\d+$", str(s.value)):
            yield lint_at(
                "same_device_for_all_ranks", f"{s.key} is {s.value} for each of several processes", s, several[0]
            )
    for source in reading.sources:
        if source.format != "python" or source.file.good:
            continue
        for line in lines_of(ws, source.file):
            if (
                _HARD_DEVICE.search(line.text)
                and "add_argument" not in line.text
                and not line.text.lstrip().startswith("#")
            ):
                says = "one fixed device in code that several processes run"
                yield Lint("same_device_for_all_ranks", says, [(source.file, line), (several[0].file, several[0].line)])
                break


def lines_of(ws: Workspace, file: RunFile) -> list[Line]:
    """The first lines of a small file; none where it cannot be read."""
    try:
        return head(ws.lines(file), 1 << 20, 5000)
    except (ParseError, OSError, EOFError, ValueError):
        return []


def _clipping(reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """The trainer is asked to clip; DeepSpeed's own file does not carry it, or its engine reports none."""
    asked = [
        s
        for s in named(mine, "gradient_clip_norm")
        if s.framework != "deepspeed" and isinstance(s.value, int | float) and s.value > 0
    ]
    files = [
        s for s in reading.sources if s.framework == "deepspeed" and s.format == "json" and s.asks and not s.file.good
    ]
    engine = [
        s for s in mine if s.name == "gradient_clip_norm" and s.used and s.framework == "deepspeed" and s.value == 0
    ]
    for source in files:
        inside = [s for s in mine if s.file == source.file]
        if asked and not any(s.name == "gradient_clip_norm" for s in inside):
            near = [
                s for s in inside if s.name in ("gradient_accumulation_steps", "micro_batch_size") and "." not in s.key
            ][:1]
            says = f"gradient clipping {asked[0].value} is asked for, {source.file.name} has no gradient_clipping key"
            yield lint_at("clip_not_passed_to_deepspeed", says, *asked[:3], *(near or inside[:1]), *engine[:2])
            return
    if asked and engine:
        says = f"gradient clipping {asked[0].value} is asked for, the DeepSpeed engine reports {engine[0].value}"
        yield lint_at("clip_not_passed_to_deepspeed", says, *engine[:2], *asked[:3])


def _two_places(mine: list[Setting]) -> Iterator[Lint]:
    """An optimizer, schedule or size given both in DeepSpeed's file and to the trainer, and not the same."""
    for name in (
        "optimizer",
        "lr_scheduler",
        "learning_rate",
        "weight_decay",
        "gradient_accumulation_steps",
        "micro_batch_size",
        "gradient_clip_norm",
        "warmup_steps",
        "fp16",
        "bf16",
    ):
        inside = [s for s in named(mine, name) if s.framework == "deepspeed" and s.value not in ("auto", None)]
        outside = [
            s for s in named(mine, name) if s.framework not in ("deepspeed", "env") and s.place.format != "table"
        ]
        if inside and outside and (name in ("optimizer", "lr_scheduler") or inside[0].value != outside[0].value):
            says = f"{name} is given twice: {inside[0].value} to DeepSpeed, {outside[0].value} to the trainer"
            yield lint_at("optimizer_scheduler_in_two_places", says, inside[0], outside[0])


def _ports(mine: list[Setting]) -> Iterator[Lint]:
    """Several launches that all take the default rendezvous port."""
    launches: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for s in mine:
        if s.framework == "launcher" and s.name in ("processes_per_node", "nodes", "world_size"):
            launches[s.file.name, s.group].append(s)
    given = {(s.file.name, s.group) for s in mine if s.name in _PORT_TAKERS}
    bare: dict[str, list[Setting]] = defaultdict(list)
    for (name, group), found in launches.items():
        if (name, group) not in given:
            bare[name].append(found[0])
    for found in bare.values():
        if len(found) > 1:
            yield lint_at(
                "master_port_default", f"{len(found)} launches without a port of their own (default 29500)", *found[:4]
            )


def _unnumbered_nodes(mine: list[Setting]) -> Iterator[Lint]:
    """Nodes told apart by RANK alone, under a launcher that counts processes itself and reads another variable."""
    by_file: dict[str, list[Setting]] = defaultdict(list)
    for s in mine:
        if not s.used:
            by_file[s.file.name].append(s)
    for found in by_file.values():
        ranks = [s for s in found if s.name == "other.rank" and s.framework == "env" and str(s.value).isdigit()]
        nodes = [s for s in found if s.name == "nodes" and str(s.value).isdigit() and int(str(s.value)) > 1]
        numbered = any(s.name in _NUMBERS_NODES for s in found)
        if ranks and nodes and not numbered and any(_COUNTS_ITSELF.search(s.line.text) for s in [*ranks, *nodes]):
            says = (
                f"RANK is set by hand for {nodes[0].value} nodes, but the launcher counts the processes itself and"
                " takes the number of its node from NODE_RANK or --node-rank, which is not given: every node is node 0"
            )
            yield lint_at("node_number_missing", says, *ranks[:4])


# ----------

_ENGINES = {"vllm", "sglang"}
_MANY_WORKERS = 192  # loader processes on one machine: as many as a large one has cores
_UNEVEN = ("pipeline_first_layers", "pipeline_last_layers")


class Numbers:
    """The one value of each setting of a run, where it is one whole positive number, with the line that says it."""

    def __init__(self, settings: list[Setting]) -> None:
        self._by_name: dict[str, list[Setting]] = {}
        self._told = {s.name for s in settings if s.value not in (None, False)}
        for s in settings:
            value = s.value
            if isinstance(value, float) and value.is_integer() and abs(value) < 10**9:  # save_steps may be a share
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
                self._by_name.setdefault(s.name, []).append(s)

    def told(self, name: str) -> bool:
        """Whether a setting is given at all, whatever its type."""
        return name in self._told

    def get(self, name: str) -> Setting | None:
        """What was printed before what was asked for; None where files disagree."""
        found = self._by_name.get(name, [])
        for side in ([s for s in found if s.used], [s for s in found if not s.used]):
            if side:
                return side[0] if len({s.value for s in side}) == 1 else None
        return None

    def all(self, *names: str) -> list[Setting] | None:
        found = [self.get(n) for n in names]
        return [s for s in found if s] if all(found) else None

    def value(self, name: str, default: int) -> int:
        s = self.get(name)
        return int(s.value) if s else default


def arithmetic_lints(reading: Settings) -> Iterator[Lint]:
    """All lints of this module, over the settings of the run (not of the good one, not of sweep tables)."""
    mine = [s for s in reading.all if not s.file.good and s.place.format != "table" and s.group != "row note"]
    if reading.frameworks - _ENGINES:  # beside a trainer, an engine's sizes are its own
        mine = [s for s in mine if s.framework not in _ENGINES]
    n = Numbers(mine)
    yield from _batch(n, reading.frameworks)
    yield from _rollout(n, reading.frameworks)
    yield from _parallel(n)
    yield from _engines(n)
    yield from _divisible(n, reading.frameworks)
    yield from _workers(n)
    yield from _schedule(n)
    yield from _best_model(mine, n)


def _lint(rule: str, says: str, *settings: Setting | None) -> Lint:
    return Lint(rule, says, [(s.file, s.line) for s in settings if s])


def _world(n: Numbers) -> tuple[int, list[Setting]] | None:
    """Processes in all: told, or nodes times processes a node."""
    if world := n.get("world_size"):
        return int(world.value), [world]
    if local := n.get("processes_per_node"):
        nodes = n.get("nodes")
        return int(local.value) * (int(nodes.value) if nodes else 1), [s for s in (local, nodes) if s]
    return None


def _model_parallel(n: Numbers) -> tuple[int, list[Setting]]:
    found = [s for name in ("tensor_parallel", "pipeline_parallel", "context_parallel") if (s := n.get(name))]
    return prod(int(s.value) for s in found), found


def _batch(n: Numbers, frameworks: set[str]) -> Iterator[Lint]:
    """global = micro x accumulation x data-parallel size; verl counts its mini-batch in prompts."""
    world = _world(n)
    sizes = n.all("global_batch_size", "micro_batch_size")
    if not world or not sizes:
        return
    whole, micro = (int(s.value) for s in sizes)
    if "verl" in frameworks:
        whole *= n.value("samples_per_prompt", 1)
    split, parallel = _model_parallel(n)
    if world[0] % split:
        return
    copies, accumulation = world[0] // split, n.get("gradient_accumulation_steps")
    if accumulation and whole != micro * int(accumulation.value) * copies:
        says = (
            f"global batch {whole} is not micro-batch {micro} x accumulation {accumulation.value} x {copies} replicas"
        )
        yield _lint("batch_arithmetic", says, *sizes, accumulation, *world[1], *parallel)
    elif not accumulation and whole % (micro * copies):
        says = f"global batch {whole} is not a multiple of micro-batch {micro} x {copies} replicas"
        yield _lint("batch_arithmetic", says, *sizes, *world[1], *parallel)


def _rollout(n: Numbers, frameworks: set[str]) -> Iterator[Lint]:
    """Samples of a rollout against the batches that are trained on them."""
    if "trl" in frameworks:
        yield from _groups(n)
    if "verl" in frameworks:
        yield from _mini_batch(n)
    found = n.all("rollout_batch_size", "samples_per_prompt", "global_batch_size")
    if not found or not frameworks & {"slime", "openrlhf", "nemo_rl"}:
        return
    prompts, samples, batch = (int(s.value) for s in found)
    steps = n.get("steps_per_rollout")
    if steps and prompts * samples != batch * int(steps.value):
        says = f"{prompts} prompts x {samples} samples is not global batch {batch} x {steps.value} steps a rollout"
        yield _lint("rollout_batch_constraint", says, *found, steps)
    elif not steps and (prompts * samples) % batch:
        says = f"{prompts} prompts x {samples} samples is not a multiple of global batch {batch}"
        yield _lint("rollout_batch_constraint", says, *found)


def _mini_batch(n: Numbers) -> Iterator[Lint]:
    """verl: the mini-batch (prompts times samples) is divided over the replicas, and must leave each at least one."""
    batch, world, each = n.get("global_batch_size"), _world(n), n.get("samples_per_prompt")
    if batch and world and int(batch.value) * (int(each.value) if each else 1) < world[0]:
        says = f"a mini-batch of {batch.value} prompts leaves nothing for each of {world[0]} processes"
        yield _lint("rollout_batch_constraint", says, batch, *world[1], each)
    prompts = n.get("rollout_batch_size")
    if batch and prompts and int(prompts.value) < int(batch.value):
        says = f"a batch of {prompts.value} prompts is smaller than the mini-batch of {batch.value}"
        yield _lint("rollout_batch_constraint", says, prompts, batch)


def _groups(n: Numbers) -> Iterator[Lint]:
    """TRL: the samples of a generation batch are groups of num_generations."""
    found, world = n.all("micro_batch_size", "samples_per_prompt"), _world(n)
    if found and world and not (n.get("generation_batch_size") or n.get("steps_per_generation")):
        batch = int(found[0].value) * world[0] * n.value("gradient_accumulation_steps", 1)
        if batch % int(found[1].value):
            says = f"{batch} samples a step are not a multiple of {found[1].value} generations a prompt"
            yield _lint("rollout_batch_constraint", says, *found, *world[1])
    batch, each, steps = (n.get(x) for x in ("generation_batch_size", "samples_per_prompt", "steps_per_generation"))
    if batch and steps:
        says = "generation_batch_size and steps_per_generation exclude each other"
        yield _lint("rollout_batch_constraint", says, batch, steps)
    if batch and each and int(batch.value) % int(each.value):
        says = f"a generation batch of {batch.value} is not a multiple of {each.value} generations a prompt"
        yield _lint("rollout_batch_constraint", says, batch, each)


def _parallel(n: Numbers) -> Iterator[Lint]:
    """TP x PP x CP (x DP) against the number of processes."""
    world = _world(n)
    split, sizes = _model_parallel(n)
    if not world or not sizes or split == 1:
        return
    copies, replicas = n.get("data_parallel"), n.get("data_parallel_replicate")  # shards, and copies of them
    if n.told("data_parallel_replicate") and not replicas:
        copies = None
    if world[0] % split:
        says = f"{world[0]} processes are not a multiple of the model-parallel size {split}"
        yield _lint("parallel_sizes", says, *sizes, *world[1])
    elif copies and split * (data := int(copies.value) * (int(replicas.value) if replicas else 1)) != world[0]:
        says = f"model-parallel {split} x data-parallel {data} is not {world[0]} processes"
        yield _lint("parallel_sizes", says, *sizes, copies, replicas, *world[1])
    experts = n.all("num_experts", "expert_parallel")
    if experts and int(experts[0].value) % int(experts[1].value):
        yield _lint("parallel_sizes", f"{experts[0].value} experts over {experts[1].value} ranks", *experts)


def _engines(n: Numbers) -> Iterator[Lint]:
    """GPUs of the rollout against the GPUs of one engine."""
    gpus, engine = n.get("rollout_gpus"), n.get("engine_tensor_parallel")
    if gpus and engine and int(gpus.value) % int(engine.value):
        says = f"{gpus.value} GPUs for the rollout are not a multiple of {engine.value} an engine"
        yield _lint("parallel_sizes", says, gpus, engine)


def _divisible(n: Numbers, frameworks: set[str]) -> Iterator[Lint]:
    heads = n.all("attention_heads", "tensor_parallel")
    if heads and int(heads[0].value) % int(heads[1].value):
        yield _lint(
            "heads_not_divisible_by_tp", f"{heads[0].value} attention heads over {heads[1].value} ranks", *heads
        )
    yield from _stages(n)
    split = n.all("sequence_length", "context_parallel") if frameworks & {"megatron", "slime"} else None
    if split and int(split[1].value) > 1 and int(split[0].value) % (2 * int(split[1].value)):
        says = f"{split[0].value} tokens are not a multiple of twice the context-parallel size {split[1].value}"
        yield _lint("sequence_not_divisible_by_cp", says, *split)


def _stages(n: Numbers) -> Iterator[Lint]:
    """Layers over stages, and over the chunks of an interleaved schedule: some releases drop the remainder silently."""
    layers, virtual = n.all("num_layers", "pipeline_parallel"), n.get("virtual_pipeline")
    if not layers or n.told("pipeline_layout") or any(n.get(x) for x in _UNEVEN):
        return
    total, stages = (int(s.value) for s in layers)
    if total % stages:
        yield _lint("layers_not_divisible_by_pp", f"{total} layers over {stages} stages", *layers)
    # the layers of a chunk or the chunks of a stage: a stage must be a multiple of either
    elif virtual and total % (stages * int(virtual.value)):
        says = f"{total} layers over {stages} stages, {total // stages} a stage, do not come out with {virtual.value}"
        yield _lint("layers_not_divisible_by_pp", f"{says} ({virtual.key})", *layers, virtual)


def _schedule(n: Numbers) -> Iterator[Lint]:
    """Warmup and decay against the length of the run, all in steps."""
    warmup, decay, total = (n.get(x) for x in ("warmup_steps", "lr_decay_steps", "max_steps"))
    if any(s and "samples" in s.key for s in (warmup, decay, total)):
        return
    for end in (decay, total):
        if warmup and end and int(warmup.value) >= int(end.value):
            says = f"warmup takes {warmup.value} steps, the schedule ends after {end.value}"
            yield _lint("warmup_exceeds_steps", says, warmup, end)
            return
    if decay and total and 10 * int(decay.value) < 9 * int(total.value):
        says = f"the learning rate has decayed after {decay.value} of {total.value} steps"
        yield _lint("schedule_ends_early", says, decay, total)


def _best_model(mine: list[Setting], n: Numbers) -> Iterator[Lint]:
    """Loading the best checkpoint at the end needs evaluations at the same steps as saves."""
    asked = next((s for s in mine if s.name == "load_best_model" and s.value is True and not s.used), None)
    if not asked:
        return
    by = {x: next((s for s in mine if s.name == x and not s.used), None) for x in ("eval_strategy", "save_strategy")}
    evaluates, saves = by["eval_strategy"], by["save_strategy"]
    words = [str(s.value).lower().rpartition(".")[2] if s else "" for s in (evaluates, saves)]
    if evaluates and words[0] in ("no", "false"):
        yield _lint("best_model_conflict", "the best model is to be loaded, evaluation is off", asked, evaluates)
    elif evaluates and saves and words[0] != words[1] and words[1] != "best":
        says = f"the best model is to be loaded, evaluation is by {words[0]} and saving by {words[1]}"
        yield _lint("best_model_conflict", says, asked, evaluates, saves)
    steps = n.all("save_steps", "eval_steps")
    if steps and words[0] == words[1] == "steps" and int(steps[0].value) % int(steps[1].value):
        says = f"saves every {steps[0].value:g} steps are not a multiple of evaluations every {steps[1].value:g}"
        yield _lint("best_model_conflict", says, asked, *steps)


def _workers(n: Numbers) -> Iterator[Lint]:
    found = n.all("dataloader_workers", "cpus_per_task")
    if found and int(found[0].value) > int(found[1].value):
        says = f"{found[0].value} loader workers on {found[1].value} CPUs"
        yield _lint("dataloader_workers_over_cpus", says, *found)
    many = n.all("dataloader_workers", "processes_per_node")
    if many and (together := int(many[0].value) * int(many[1].value)) >= _MANY_WORKERS:
        says = f"{many[1].value} processes with {many[0].value} loader workers each are {together} on one machine"
        yield _lint("dataloader_workers_many", says, *many)

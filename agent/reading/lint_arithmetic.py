"""Arithmetic on settings: batch sizes, parallel sizes, divisibility. Only where every number is known."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .lint_places import Lint
from .settings import Setting, Settings

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

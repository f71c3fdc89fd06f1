"""Arithmetic on settings: batch sizes, parallel sizes, divisibility. Only where every number is known."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .lint_places import Lint
from .settings import Setting, Settings


class Numbers:
    """The one value of each setting of a run, where it is one whole positive number, with the line that says it."""

    def __init__(self, settings: list[Setting]) -> None:
        self._by_name: dict[str, list[Setting]] = {}
        for s in settings:
            if isinstance(s.value, int) and not isinstance(s.value, bool) and 0 < s.value < 10**9:
                self._by_name.setdefault(s.name, []).append(s)

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
    n = Numbers(mine)
    yield from _batch(n)
    yield from _rollout(n, reading.frameworks)
    yield from _parallel(n)
    yield from _divisible(n)
    yield from _workers(n)


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


def _batch(n: Numbers) -> Iterator[Lint]:
    """global = micro x accumulation x data-parallel size."""
    world = _world(n)
    sizes = n.all("global_batch_size", "micro_batch_size")
    if not world or not sizes:
        return
    whole, micro = (int(s.value) for s in sizes)
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
    if not found or not frameworks & {"slime", "openrlhf"}:
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


def _groups(n: Numbers) -> Iterator[Lint]:
    """TRL: the samples of a generation batch are groups of num_generations."""
    found, world = n.all("micro_batch_size", "samples_per_prompt"), _world(n)
    if found and world:
        batch = int(found[0].value) * world[0] * n.value("gradient_accumulation_steps", 1)
        if batch % int(found[1].value):
            says = f"{batch} samples a step are not a multiple of {found[1].value} generations a prompt"
            yield _lint("rollout_batch_constraint", says, *found, *world[1])


def _parallel(n: Numbers) -> Iterator[Lint]:
    """TP x PP x CP (x DP) against the number of processes."""
    world = _world(n)
    split, sizes = _model_parallel(n)
    if not world or not sizes or split == 1:
        return
    copies = n.get("data_parallel")
    if world[0] % split:
        says = f"{world[0]} processes are not a multiple of the model-parallel size {split}"
        yield _lint("parallel_sizes", says, *sizes, *world[1])
    elif copies and split * int(copies.value) != world[0]:
        says = f"model-parallel {split} x data-parallel {copies.value} is not {world[0]} processes"
        yield _lint("parallel_sizes", says, *sizes, copies, *world[1])
    experts = n.all("num_experts", "expert_parallel")
    if experts and int(experts[0].value) % int(experts[1].value):
        yield _lint("parallel_sizes", f"{experts[0].value} experts over {experts[1].value} ranks", *experts)


def _divisible(n: Numbers) -> Iterator[Lint]:
    heads = n.all("attention_heads", "tensor_parallel")
    if heads and int(heads[0].value) % int(heads[1].value):
        yield _lint(
            "heads_not_divisible_by_tp", f"{heads[0].value} attention heads over {heads[1].value} ranks", *heads
        )
    layers = n.all("num_layers", "pipeline_parallel")
    if layers and int(layers[0].value) % int(layers[1].value):
        yield _lint("layers_not_divisible_by_pp", f"{layers[0].value} layers over {layers[1].value} stages", *layers)


def _workers(n: Numbers) -> Iterator[Lint]:
    found = n.all("dataloader_workers", "cpus_per_task")
    if found and int(found[0].value) > int(found[1].value):
        says = f"{found[0].value} loader workers on {found[1].value} CPUs"
        yield _lint("dataloader_workers_over_cpus", says, *found)

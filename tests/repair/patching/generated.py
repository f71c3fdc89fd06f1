"""Files of settings as people write them, at random: comments, odd layout, every kind of file, and edits to make."""

from __future__ import annotations

import json
from random import Random
from typing import NamedTuple

from traindoctor.agent.repair.patching.spelling import REMOVE

END = {"\n": 6, "\r\n": 1}
COMMENTS = ("why: see #12", "größe, 'quoted', {x}", "TODO(ana) -> 3e-4?", "[section] = 1", "do not touch", "a, b \\ c")
TAIL = " 2>&1 | tee log.txt"
RATES = (1e-5, 3e-4, 0.5, 2.5e-7, 2.0, 0.01)
COUNTS = (1, 2, 7, 16, 300)


class Made(NamedTuple):
    """A text with what is to be changed in it."""

    kind: str
    name: str
    framework: str
    text: str
    edits: dict


# kind -> (name, framework, canonical -> (key, values)); a key with dots is nested.
DEEPSPEED = {
    "learning_rate": ("optimizer.params.lr", RATES), "gradient_clip_norm": ("gradient_clipping", RATES),
    "micro_batch_size": ("train_micro_batch_size_per_gpu", COUNTS), "zero_stage": ("zero_optimization.stage", (0, 1, 2, 3)),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", COUNTS), "bf16": ("bf16.enabled", (True, False)),
    "reduce_bucket_size": ("zero_optimization.reduce_bucket_size", (5e8, 2e8)),
    "warmup_steps": ("scheduler.params.warmup_num_steps", COUNTS),
}  # fmt: skip
AXOLOTL = {
    "learning_rate": ("learning_rate", RATES), "gradient_clip_norm": ("max_grad_norm", RATES),
    "micro_batch_size": ("micro_batch_size", COUNTS), "sequence_length": ("sequence_len", (512, 4096)),
    "packing": ("sample_packing", (True, False)), "epochs": ("num_epochs", (1, 3)),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", COUNTS), "warmup_steps": ("warmup_steps", COUNTS),
}  # fmt: skip
VERL = {
    "learning_rate": ("actor_rollout_ref.actor.optim.lr", RATES), "seed": ("data.seed", COUNTS),
    "gradient_clip_norm": ("actor_rollout_ref.actor.grad_clip", RATES),
    "samples_per_prompt": ("actor_rollout_ref.rollout.n", COUNTS),
    "engine_memory_fraction": ("actor_rollout_ref.rollout.gpu_memory_utilization", (0.5, 0.85)),
    "max_prompt_length": ("data.max_prompt_length", (512, 2048)),
}  # fmt: skip
TITAN = {
    "learning_rate": ("optimizer.lr", RATES), "gradient_clip_norm": ("training.max_norm", RATES),
    "micro_batch_size": ("training.local_batch_size", COUNTS), "sequence_length": ("training.seq_len", (512, 4096)),
    "warmup_steps": ("lr_scheduler.warmup_steps", COUNTS), "max_steps": ("training.steps", COUNTS),
    "tensor_parallel": ("parallelism.tensor_parallel_degree", (1, 2, 4)),
}  # fmt: skip
HF = {
    "learning_rate": ("learning_rate", RATES), "gradient_clip_norm": ("max_grad_norm", RATES),
    "micro_batch_size": ("per_device_train_batch_size", COUNTS), "warmup_steps": ("warmup_steps", COUNTS),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", COUNTS), "epochs": ("num_train_epochs", (1, 3)),
    "save_steps": ("save_steps", COUNTS), "dataloader_workers": ("dataloader_num_workers", COUNTS),
}  # fmt: skip
MEGATRON = {
    "learning_rate": ("lr", RATES), "gradient_clip_norm": ("clip-grad", RATES), "seed": ("seed", COUNTS),
    "micro_batch_size": ("micro-batch-size", COUNTS), "warmup_steps": ("lr-warmup-iters", COUNTS),
    "tensor_parallel": ("tensor-model-parallel-size", (1, 2, 4)), "save_steps": ("save-interval", COUNTS),
}  # fmt: skip
ACCELERATE = {
    "precision": ("mixed_precision", ("fp16", "bf16")), "world_size": ("num_processes", COUNTS),
    "zero_stage": ("deepspeed_config.zero_stage", (1, 2, 3)),
    "gradient_clip_norm": ("deepspeed_config.gradient_clipping", RATES),
}  # fmt: skip
ENV = {
    "nccl_debug": ("NCCL_DEBUG", ("INFO", "WARN")), "nccl_ib_timeout": ("NCCL_IB_TIMEOUT", (18, 22)),
    "nccl_socket_interface": ("NCCL_SOCKET_IFNAME", ("eth0", "ib0")), "nccl_ib_disable": ("NCCL_IB_DISABLE", (True, False)),
}  # fmt: skip
SLURM = {
    "nodes": ("nodes", COUNTS), "cpus_per_task": ("cpus-per-task", COUNTS), "time_limit": ("time", ("02:00:00", "10:00:00")),
}  # fmt: skip


def document(seed: int) -> Made:
    """The document and the edits of a seed; the kinds take turns."""
    rng = Random(seed)
    kind = tuple(KINDS)[seed % len(KINDS)]
    name, framework, table, write, whole, always = KINDS[kind]
    held = {s: rng.choice(v) for s, (_, v) in table.items() if s in always or rng.random() < 0.6}
    wanted: dict = {}
    among = sorted(table if whole else held)
    for setting in rng.sample(among, k=min(rng.randint(1, 3), len(among))):
        values = [v for v in table[setting][1] if v != held.get(setting)]
        removable = whole and setting in held and setting not in always
        wanted[setting] = REMOVE if removable and rng.random() < 0.2 else rng.choice(values)
    end = rng.choices(tuple(END), tuple(END.values()))[0]
    text = write(rng, {table[s][0]: v for s, v in held.items()}).replace("\n", end)
    return Made(kind, name, framework, text.removesuffix(end) if rng.random() < 0.2 else text, wanted)


def _comment(rng: Random, mark: str, before: str = "  ") -> str:
    return f"{before}{mark} {rng.choice(COMMENTS)}" if rng.random() < 0.3 else ""


def _tree(rng: Random, held: dict) -> dict:
    """Nested mappings of dotted keys among others, in any order."""
    tree: dict = {}
    others = {f"x_{rng.randrange(99)}": rng.choice((1, 2.5, True, "a: b", "it's", [1, 2], "# no")) for _ in range(4)}
    pairs = [*held.items(), *others.items()]
    rng.shuffle(pairs)
    for key, value in pairs:
        *above, last = key.split(".")
        home = tree
        for part in above:
            home = home.setdefault(part, {})
        home[last] = value
    return tree


def _number(rng: Random, value: object) -> str:
    if isinstance(value, float) and rng.random() < 0.5:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return json.dumps(value, ensure_ascii=False)


def write_json(rng: Random, held: dict, comments: bool = False) -> str:
    step = rng.choice(("  ", "    ", "\t"))

    def mark() -> str:
        return _comment(rng, "//") if comments else ""

    def rows(tree: dict, indent: str) -> list[str]:
        out = [f"{indent}/* {rng.choice(COMMENTS)} */"] if comments and rng.random() < 0.3 else []
        for i, (key, value) in enumerate(tree.items()):
            comma = "," if i + 1 < len(tree) or (comments and rng.random() < 0.3) else ""
            if isinstance(value, dict) and rng.random() < 0.8:
                out += [f'{indent}"{key}": {{{mark()}', *rows(value, indent + step), f"{indent}}}{comma}{mark()}"]
            else:
                shown = json.dumps(value) if isinstance(value, dict) else _number(rng, value)
                out.append(f'{indent}"{key}"{rng.choice((": ", ":", " : "))}{shown}{comma}{mark()}')
            out += [""] * (rng.random() < 0.1)
        return out

    return "\n".join(["{", *rows(_tree(rng, held), step), "}", ""])


def write_jsonc(rng: Random, held: dict) -> str:
    return write_json(rng, held, comments=True)


def write_yaml(rng: Random, held: dict) -> str:
    step = rng.choice(("  ", "    "))

    def rows(tree: dict, indent: str) -> list[str]:
        out: list[str] = []
        for key, value in tree.items():
            out += [f"{indent}# {rng.choice(COMMENTS)}"] * (rng.random() < 0.2) + [""] * (rng.random() < 0.1)
            shown = f'"{key}"' if rng.random() < 0.1 else key
            if isinstance(value, dict) and rng.random() < 0.85:
                out += [f"{indent}{shown}:{_comment(rng, '#')}", *rows(value, indent + step)]
            elif isinstance(value, dict):
                inner = ", ".join(f"{k}: {json.dumps(v)}" for k, v in value.items())
                out.append(f"{indent}{shown}: {{{inner}}}{_comment(rng, '#')}")
            else:
                out.append(f"{indent}{shown}:{rng.choice((' ', '   '))}{_number(rng, value)}{_comment(rng, '#')}")
        return out

    extra = ["x_base: &base {a: 1, b: 2}", "x_copy:", f"{step}<<: *base", f"{step}c: 3  # kept"]
    body = rows(_tree(rng, held), "")
    text = ["x_text: |", "  learning_rate: 3", "  [a]"] * (rng.random() < 0.4)
    return "\n".join([*text, *(extra if rng.random() < 0.5 else []), *body, ""])


def write_accelerate(rng: Random, held: dict) -> str:
    return "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n" + write_yaml(rng, held)


def write_toml(rng: Random, held: dict) -> str:
    tables: dict[str, dict] = {"job": {"dump_folder": "/x"}}
    for key, value in held.items():
        table, _, last = key.partition(".")
        tables.setdefault(table, {})[last] = value
    names = list(tables)
    rng.shuffle(names)
    out = [f"# {rng.choice(COMMENTS)}"]
    for table in names:
        out += ["", f"[{table}]{_comment(rng, '#')}"]
        out += ['x_text = """', "[optimizer]", "lr = 3", '"""'] * (rng.random() < 0.3)
        out += ["x_list = [", "  1, # one", "  2]"] * (rng.random() < 0.3)
        for key, value in tables[table].items():
            out.append(f"{key}{rng.choice((' = ', '=', '   = '))}{_number(rng, value)}{_comment(rng, '#')}")
    return "\n".join([*out, ""])


def write_ini(rng: Random, held: dict) -> str:
    rows = [f"{k}{rng.choice((' = ', '=', ': '))}{_number(rng, v)}{_comment(rng, ';')}" for k, v in held.items()]
    return "\n".join(["[train]", "; kept", *rows, "", "[other]", "x = 1", ""])


def _word(rng: Random, value: object) -> str:
    shown = str(int(value)) if isinstance(value, bool) else value if isinstance(value, str) else _number(rng, value)
    quote = rng.choice(("", "", "", '"', "'"))
    return f"{quote}{shown}{quote}"


def write_env(rng: Random, held: dict) -> str:
    export = rng.choice(("", "export "))
    rows = [f"{export}{k}={_word(rng, v)}{_comment(rng, '#')}" for k, v in held.items()]
    return "\n".join(["# of the job", f"{export}A_B=1", *rows, f"{export}C='x y'", ""])


def _command(rng: Random, first: str, words: list[str]) -> str:
    rng.shuffle(words)
    joint = rng.choice((" \\\n    ", " \\\n\t", " "))
    head = "#!/bin/bash\n# start\nset -e\nexport OMP_NUM_THREADS=8  # kept\n"
    return f"{head}{first}{joint}{joint.join(words)}{rng.choice(('', TAIL))}\n"


def write_flags(rng: Random, held: dict) -> str:
    mark = rng.choice((" ", "="))
    words = [f"--{k}{mark}{_word(rng, v)}" for k, v in held.items()]
    return _command(rng, "torchrun --nproc_per_node 8 train.py", [*words, "--output_dir /data/out", "--x_y 'a b'"])


def write_megatron(rng: Random, held: dict) -> str:
    words = [f"--{k} {_word(rng, v)}" for k, v in held.items()]
    return _command(rng, "torchrun --nproc-per-node 8 pretrain_gpt.py", [*words, "--use-flash-attn", "--data-path /d"])


def write_overrides(rng: Random, held: dict) -> str:
    words = [f"{k}={_word(rng, v)}" for k, v in held.items()]
    return _command(rng, "python3 -m verl.trainer.main_ppo", [*words, "trainer.logger=console", "+x.y='[1,2]'"])


def write_sbatch(rng: Random, held: dict) -> str:
    rows = [f"#SBATCH --{k}{rng.choice(('=', ' '))}{v}" for k, v in held.items()]
    return "\n".join(["#!/bin/bash", "#SBATCH --job-name=x", *rows, "# kept", "srun python train.py --x_y 1", ""])


def write_arguments(rng: Random, held: dict) -> str:
    spread = rng.random() < 0.7
    words = [f"{k}={_number(rng, v)}" for k, v in held.items()] + ["output_dir='/data/größe'", "x_y=f(3)"]
    rng.shuffle(words)
    rows = [f"    {w},{_comment(rng, '#')}" for w in words]
    call = "\n".join(["TrainingArguments(", *rows, ")"]) if spread else f"TrainingArguments({', '.join(words)})"
    return f'"""Train."""\nfrom transformers import TrainingArguments  # kept\n\nargs = {call}\ntrain(args)\n'


def write_dict(rng: Random, held: dict) -> str:
    body = json.dumps(_tree(rng, held), indent=rng.choice((2, 4))).replace("true", "True").replace("false", "False")
    return f"import deepspeed\n\nconfig = {body}  # kept\nengine = deepspeed.initialize(config=config)\n"


KINDS = {
    "DeepSpeed JSON": ("ds.json", "deepspeed", DEEPSPEED, write_json, True, ("zero_stage", "learning_rate", "warmup_steps")),
    "JSON with comments": ("ds.jsonc", "deepspeed", DEEPSPEED, write_jsonc, True, ("zero_stage", "learning_rate", "warmup_steps")),
    "YAML": ("a.yaml", "axolotl", AXOLOTL, write_yaml, True, ("micro_batch_size",)),
    "YAML of verl": ("v.yaml", "verl", VERL, write_yaml, True, ("learning_rate", "max_prompt_length", "samples_per_prompt")),
    "YAML of accelerate": ("acc.yaml", "accelerate", ACCELERATE, write_accelerate, True, tuple(ACCELERATE)),
    "TOML": ("t.toml", "torchtitan", TITAN, write_toml, True, ("sequence_length",)),
    "INI": ("t.ini", "hf", HF, write_ini, False, ("learning_rate",)),
    ".env": (".env", "", ENV, write_env, True, ("nccl_debug",)),
    "flags": ("run.sh", "hf", HF, write_flags, True, ("learning_rate",)),
    "flags of Megatron": ("pre.sh", "megatron", MEGATRON, write_megatron, True, ("learning_rate", "micro_batch_size")),
    "Hydra overrides": ("verl.sh", "verl", VERL, write_overrides, True, ("learning_rate",)),
    "sbatch header": ("job.sbatch", "", SLURM, write_sbatch, True, ("nodes",)),
    "Python call": ("train.py", "hf", HF, write_arguments, True, ("learning_rate",)),
    "Python dictionary": ("ds.py", "deepspeed", DEEPSPEED, write_dict, True, ("zero_stage", "learning_rate", "warmup_steps")),
}  # fmt: skip

"""Launch scripts as people write them: every change is run, with no program in reach, and only what was meant differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell_oracle import accepts, differences, names_of, run
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.environment_changes import change_variables
from traindoctor.agent.repair.patching.spelling import REMOVE

SCRIPTS = Path(__file__).resolve().parent / "scripts"
NAMES = sorted(path.name for path in SCRIPTS.iterdir())
FRAMEWORKS = {
    "slime": "slime", "verl": "verl", "megatron": "megatron", "torchtitan": "torchtitan", "openrlhf": "openrlhf",
    "nemo": "nemo", "axolotl": "axolotl", "llamafactory": "llamafactory", "swift": "swift", "vllm": "vllm",
    "torchtune": "torchtune", "eval": "megatron", "conda": "pytorch",
}  # fmt: skip
SETTINGS = {
    "learning_rate": 7e-6, "micro_batch_size": 3, "gradient_accumulation_steps": 6, "gradient_clip_norm": 0.7,
    "precision": "bf16", "activation_checkpointing": True, "warmup_steps": 123, "weight_decay": 0.05,
    "sequence_length": 1536, "zero_stage": 3, "offload_optimizer": "cpu", "nccl_timeout": 5400, "tensor_parallel": 4,
    "pipeline_parallel": 2, "context_parallel": 2, "engine_memory_fraction": 0.55, "kl_coefficient": 0.02,
    "save_steps": 77, "max_steps": 99, "seed": 7, "nodes": 3, "processes_per_node": 2, "dataloader_workers": 5,
    "resume_from": "/ckpt/step-100", "nccl_debug": "TRACE", "nccl_ib_disable": True, "cpus_per_task": 12,
    "epochs": 2, "logging_steps": 11, "global_batch_size": 96, "samples_per_prompt": 6, "max_restarts": 2,
}  # fmt: skip
OFTEN = ("learning_rate", "micro_batch_size", "gradient_clip_norm", "precision", "nccl_debug", "nccl_timeout")
REMOVED = ("learning_rate", "gradient_clip_norm", "micro_batch_size", "precision", "nccl_debug")
VARIABLES = {
    "NCCL_DEBUG": "TRACE", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_ENABLE_MONITORING": "0",
    "LD_LIBRARY_PATH": "/opt/x/lib",
}  # fmt: skip
MEANT = {
    "precision": {"precision", "fp16", "bf16", "model_dtype", "mixed_precision"},
    "nodes": {"nodes", "world_size", "standalone"},
    "processes_per_node": {"processes_per_node", "world_size", "gpus"},
}


def text_of(name):
    return (SCRIPTS / name).read_bytes().decode()


def framework_of(name):
    return next((f for start, f in FRAMEWORKS.items() if name.startswith(start)), "hf")


def only_what_was_meant(setting, before, after, framework):
    """Each word that differs belongs to the setting: a flag of its name, or the value behind one."""
    meant = MEANT.get(setting, {setting})
    for _, old, new, behind in differences(before, after):
        named = {n for w in (*old, *new) if (n := names_of(w, framework))} | {names_of(behind, framework)} - {""}
        assert len(old) <= 3 and len(new) <= 4, (old, new)
        if any("{" in w for w in old):  # JSON for Ray
            continue
        assert named & meant, (old, new, behind)
        loose = [w for w in old if "=" not in w and not w.startswith("-")]
        assert len(loose) <= 2 and not any("/" in w for w in loose if setting != "resume_from"), (old, new)


def check(name, setting, value):
    """One change of one script; answers whether it was written."""
    text, framework = text_of(name), framework_of(name)
    got = change(text, name, {setting: value}, framework)
    if got.snippets:
        assert got.text == text and not got.edits and all(s.reason for s in got.snippets)
        return False
    again = change(got.text, name, {setting: value}, framework)
    assert (again.text, again.edits) == (got.text, ())
    if got.text == text:
        return True
    assert accepts(got.text)
    if "\r\n" not in text:
        before, after = run(text), run(got.text)
        only_what_was_meant(setting, before, after, framework)
        assert before.files.keys() == after.files.keys()
        changed = got.text != text and not got.text.startswith("#SBATCH")
        same = before == after
        assert not (same and changed) or all("SBATCH" in line for line in _changed(text, got.text)) or _not_run(name)
    return True


def _not_run(name):
    """Scripts in which the branch or the function that changed is not entered without its cluster."""
    return name in ("verl_slurm_ray.slurm", "slime_qwen3_multi.sh", "if_else_launch.sh", "llamafactory.sh")


def _changed(old, new):
    there = old.splitlines()
    return [line for line in new.splitlines() if line not in there]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_started_differs_only_in_what_was_meant(name):
    for setting in OFTEN:
        check(name, setting, SETTINGS[setting])


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_thirty_settings_of_every_script(name):
    for setting, value in SETTINGS.items():
        check(name, setting, value)
    for setting in REMOVED if name != "sweep_loop.sh" else ():  # its commands differ by what would be taken out
        check(name, setting, REMOVE)


def test_most_changes_are_written_and_not_left_to_the_hand():
    plain = [
        n for n in NAMES if framework_of(n) == "hf" and n not in ("case_sizes.sh", "sweep_loop.sh", "ssh_nodes.sh")
    ]
    for name in plain:
        got = change(text_of(name), name, {"learning_rate": 7e-6}, "hf")
        assert not got.snippets, (name, got.snippets)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "windows_ends.sh"])
def test_a_variable_reaches_what_trains_and_nothing_else_moves(name):
    text = text_of(name)
    before = run(text)
    for variable, value in VARIABLES.items():
        got = change_variables(text, name, {variable: value})
        if got.snippets:
            assert got.text == text and got.snippets[0].reason and got.snippets[0].text
            continue
        assert change_variables(got.text, name, {variable: value}).text == got.text and accepts(got.text)
        after = run(got.text)
        there = variable if variable in got.text else "PYTORCH_ALLOC_CONF"
        reached = False
        for old, new in zip(before.started, after.started, strict=True):
            rest = [{k: v for k, v in s.environment.items() if k != there} for s in (old, new)]
            assert rest[0] == rest[1]
            joined = " ".join(new.words).replace("\\", "")
            assert old.words == new.words or there in joined, (old.words, new.words)
            reached |= value in new.environment.get(there, "") or (there in joined and value in joined)
        assert reached, got.text


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_that_was_put_in_is_taken_out_again(name):
    text = text_of(name)
    for variable in ("TORCH_NCCL_ENABLE_MONITORING", "CUDA_LAUNCH_BLOCKING"):
        got = change_variables(text, name, {variable: "1"})
        if got.edits and variable not in text:
            assert change_variables(got.text, name, {variable: REMOVE}).text == text

"""A hazard in code counts where its line ran, and where the run was and did what the hazard needs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.code.project import detects
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards


def names(folder: Path, source: str, question: str = "", **more: str) -> set[str]:
    (folder / "train.py").write_text(textwrap.dedent(source))
    for name, text in more.items():
        (folder / name.replace("__", ".")).write_text(textwrap.dedent(text))
    return {e.key.removeprefix("code.") for e in find_hazards(Workspace([folder], question=question)).evidence}


def test_a_need_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="no such need"):
        detects("graph_kept", needs=("luck",))


OPTION = """
    import argparse
    from peft import LoraConfig
    parser = argparse.ArgumentParser()
    parser.add_argument("--{name}", {kind})
    args = parser.parse_args()
    if {test}:
        config = LoraConfig(target_modules=["q_proj"])
    print("training starts")
"""


@pytest.mark.parametrize(
    ("kind", "test", "given", "runs"),
    [
        ('action="store_true"', "args.lora", "", False),
        ('action="store_true"', "args.lora", "--lora", True),
        ('action="store_true"', "not args.lora", "", True),
        ("type=int, default=0", "args.lora and step % args.lora == 0", "", False),
        ("type=int, default=0", "args.lora > 4", "--lora 8", True),
        ("type=int, default=0", "args.lora > 4", "--lora=2", False),
        ('default="none"', 'args.lora == "all"', "", False),
        ('default="none"', 'args.lora in ("all", "some")', "--lora some", True),
        ("default=None", "args.lora is not None", "", False),
        ("type=lambda v: v", "args.lora", "--lora 0", False),  # what a function makes of it is not known: not told
        ('action="store_true"', "args.lora", '"$@"', False),  # nor what else was given
    ],
)
def test_a_branch_that_options_decide(tmp_path, kind, test, given, runs) -> None:
    source = OPTION.format(name="lora", kind=kind, test=test)
    found = names(tmp_path, source, run__sh=f"python train.py {given} > train.log\n", train__log="training starts\n")
    assert ("lora_target" in found) is runs


def test_without_a_command_what_an_option_decides_is_not_told_unless_the_log_shows_it(tmp_path) -> None:
    source = OPTION.format(name="lora", kind='action="store_true"', test="args.lora")
    assert "lora_target" not in names(tmp_path, source, train__log="training starts\n")
    shown = source.replace("        config =", '        print("adapters are made")\n        config =')
    assert "lora_target" in names(tmp_path, shown, train__log="adapters are made\ntraining starts\n")


CALLED = """
    from peft import LoraConfig
    def adapt(model):
        return LoraConfig(target_modules=["q_proj"])
    class Old:
        def adapt_all(self):
            return LoraConfig(target_modules=["k_proj"])
    def main(model):
        {call}
        print("training starts")
    if __name__ == "__main__":
        main(1)
"""


@pytest.mark.parametrize(
    ("call", "runs"),
    [
        ("pass", False),
        ("adapt(model)", True),
        ("build = adapt", True),
        ("apply({'adapter': 'adapt'})", False),  # an excerpt would be all that is known: `apply` is bound nowhere
        ("Old().adapt_all()", True),
        ("Old()", False),
        ("model.adapt", False),
        ("globals()['ad' + 'apt'](model)", True),
    ],
)
def test_a_function_that_nothing_refers_to(tmp_path, call, runs) -> None:
    found = names(tmp_path, CALLED.format(call=call), train__log="training starts\n")
    assert ("lora_target" in found) is (runs or call.startswith("apply"))


SAYS = """
    import os, torch
    from peft import LoraConfig
    print("building the model of letters")
    if os.path.exists("adapter"):
        config = LoraConfig(target_modules=["q_proj"])
        print("took up the adapter of yesterday")
    print("training starts now")
"""


def test_a_block_that_printed_nothing_did_not_run(tmp_path) -> None:
    silent = "building the model of letters\ntraining starts now\n"
    assert "lora_target" not in names(tmp_path, SAYS, train__log=silent)
    said = silent.replace("training", "took up the adapter of yesterday\ntraining")
    assert "lora_target" in names(tmp_path, SAYS, train__log=said)
    cut = "building the model of letters\n"  # it may have ended in the block, before it could say so: not told
    assert "lora_target" not in names(tmp_path, SAYS, train__log=cut)


SAVES = """
    import torch
    from pathlib import Path
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    if Path("last.pt").exists():
        state = torch.load("last.pt")
        optimizer.load_state_dict(state["optimizer"])
        print("going on where it was left, step", state["step"])
    print("training of the letters starts")
    for step in range(9):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "last.pt")
    print("training of the letters is done")
"""
FRESH = "training of the letters starts\ntraining of the letters is done\n"


def test_what_a_checkpoint_lacks_is_nothing_until_something_goes_on(tmp_path) -> None:
    lacking = {"scheduler_not_saved", "rng_not_saved"}
    assert not lacking & names(tmp_path, SAVES, train__log=FRESH)
    assert lacking <= names(tmp_path, SAVES, train__log="going on where it was left, step 4\n" + FRESH)
    assert lacking <= names(tmp_path, SAVES, "Since I resumed the run the rate is wrong", train__log=FRESH)


@pytest.mark.parametrize(
    ("launch", "log", "several"),
    [
        ("python train.py > train.log\n", "", False),
        ("torchrun --nproc_per_node 1 train.py > train.log\n", "", False),
        ("torchrun --nproc_per_node 4 train.py > train.log\n", "", True),
        ("WORLD_SIZE=2 python train.py > train.log\n", "", True),
        ("accelerate launch --num_processes=8 train.py > train.log\n", "", True),
        ("srun --ntasks 4 python train.py > train.log\n", "", True),
        ("python train.py > train.log\n", "[rank3]: ready\n", True),
        ("python train.py > train.log\n", "distributed mode with multiple processes, 1 GPU each\n", True),
        ("python train.py > train.log\n", "1 process, rank 0, world size 1\n", False),
    ],
)
def test_several_processes_are_a_fact_of_the_run(tmp_path, launch, log, several) -> None:
    source = """
        import torch.distributed as dist, torch
        dist.init_process_group("nccl")
        print("process group ready")
        torch.manual_seed(3 + dist.get_rank())
    """
    found = names(tmp_path, source, run__sh=launch, train__log=f"process group ready\n{log}")
    assert ("seed_per_rank" in found) is several


@pytest.mark.parametrize(
    ("more", "gpu"),
    [
        ({}, True),
        ({"run__sh": "python train.py --device cpu > train.log\n"}, False),
        ({"train__log": "training starts here\nGPU available: False, used: False\n"}, False),
        ({"train__log": "training starts here\nusing device: cpu\n"}, False),
    ],
)
def test_waiting_for_a_device_needs_one(tmp_path, more, gpu) -> None:
    source = """
        import torch
        print("training starts here")
        for batch in loader:
            loss = model(batch.to(device))
            value = loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    given = {"train__log": "training starts here\n", **more}
    assert ("item_before_backward" in names(tmp_path, source, **given)) is gpu


ENDS = """
    import sys
    from peft import LoraConfig
    def main():
        print("training starts")
        {before}
        {later}
    {start}
"""
ADAPTS = 'config = LoraConfig(target_modules=["q_proj"])'
START = 'if __name__ == "__main__":\n        main()'
AGAIN = "for _ in range(3):\n        main()"


@pytest.mark.parametrize(
    ("before", "later", "start", "runs"),
    [
        ("data = open(sys.argv[1])", ADAPTS, START, False),
        ("data = open(sys.argv[1])", f"if data:\n            {ADAPTS}", "main()", False),
        ("data = open(sys.argv[1])", f"with data:\n            {ADAPTS}", START, False),
        ("data = open(sys.argv[1])", ADAPTS, AGAIN, True),  # it came by before
        (f"for _ in range(9):\n            data = open(sys.argv[1])\n            {ADAPTS}", "pass", START, True),
        (
            f"try:\n            data = open(sys.argv[1])\n        except OSError:\n            {ADAPTS}",
            "pass",
            START,
            True,
        ),
        (ADAPTS, "data = open(sys.argv[1])", START, True),
    ],
)
def test_what_stands_behind_the_failure_that_ended_the_run_did_not_run(tmp_path, before, later, start, runs) -> None:
    source = textwrap.dedent(ENDS.format(before=before, later=later, start=start))
    rows = source.split("\n")
    at = next(n for n, row in enumerate(rows, 1) if "open(sys.argv[1])" in row)
    log = f'training starts\nTraceback (most recent call last):\n  File "train.py", line {at}, in main\n    {rows[at - 1].strip()}\n'
    log += "FileNotFoundError: [Errno 2] No such file or directory: 'a.txt'\n"
    assert ("lora_target" in names(tmp_path, source, train__log=log)) is runs


@pytest.mark.parametrize(
    ("line", "is_on_cpu"),
    [
        ("using device: cpu", True),
        ("GPU available: False, used: False", True),
        ("the model trains on the CPU", True),
        ("offloading the optimizer, its states are on CPU", False),
        ("Loading checkpoint shards on cpu", False),
        ("tokenizing on CPU with 8 threads", False),
        ("using device: cuda:0", False),
    ],
)
def test_a_line_about_the_cpu_is_not_yet_a_run_on_it(tmp_path, line, is_on_cpu) -> None:
    source = "for b in loader:\n    loss = model(b.to(device))\n    print(loss.item())\n    loss.backward()\n    opt.step()\n"
    found = names(tmp_path, source, train__log=f"{line}\n2.0\n1.9\n", run__sh="python train.py > train.log\n")
    assert ("item_before_backward" in found) is not is_on_cpu

"""Launch scripts in which the first place that comes to mind is the wrong one."""

from __future__ import annotations

import pytest
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.spelling import REMOVE

LR = {"learning_rate": 1e-6}
CLIP = {"gradient_clip_norm": 0.5}
CHANGED = [
    # arrays that are added to, or filled anew
    ("hf", "A=(--seed 1)\nA+=(--learning_rate 1e-4)\npython train.py ${A[@]}\n", LR, "1e-4", "1e-6"),
    ("hf", "A=(--learning_rate 1e-3)\nA=(--learning_rate 1e-4)\npython train.py ${A[@]}\n", LR, "1e-4", "1e-6"),
    ("hf", "A=(--learning_rate 1e-4)\nif [ x ]; then\n  A+=(--seed 2)\nfi\npython train.py ${A[@]}\n", CLIP,
     "1e-4)", "1e-4 --max_grad_norm 0.5)"),
    ("hf", "if [ x ]; then\n  A=(--seed 2)\nfi\npython train.py --learning_rate 1e-4 ${A[@]}\n", CLIP,
     "${A[@]}", "${A[@]} --max_grad_norm 0.5"),
    # the command that trains, not its neighbours
    ("hf", "python prepare.py --learning_rate 1\npython train.py --learning_rate 1e-4\n", LR, "1e-4", "1e-6"),
    ("hf", "python convert.py --fp16\npython train.py --learning_rate 1e-4\npython eval.py --x 1\n", CLIP,
     "1e-4\n", "1e-4 --max_grad_norm 0.5\n"),
    ("hf", "pip install --upgrade x\nhuggingface-cli download --repo-type y z\ntorchrun --nproc_per_node 8 train.py --seed 1\n", CLIP,
     "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "python -m data.build --seed 1\npython -m trainer.sft --seed 2\n", CLIP, "--seed 2", "--seed 2 --max_grad_norm 0.5"),
    ("hf", "M=(--seed 1)\npython convert_model.py ${M[@]}\npython train.py ${M[@]} --learning_rate 1e-4\n", CLIP,
     "1e-4", "1e-4 --max_grad_norm 0.5"),
    ("hf", "python train.py --seed 1 -- rest\n", CLIP, "--seed 1 --", "--seed 1 --max_grad_norm 0.5 --"),
    ("hf", 'python train.py --seed 1 "$@"\n', CLIP, '"$@"', '--max_grad_norm 0.5 "$@"'),
    # within quotes
    ("hf", "bash -c \"python train.py \\\n  --seed 1\"\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "srun bash -c 'cd /x && python train.py --seed 1 2>&1 | tee log'\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "ssh host \"cd /x; python train.py --seed 1\"\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "su - me -c 'python train.py --seed 1'\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "eval \"python train.py --seed 1\"\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "docker run --gpus all image bash -c 'python train.py --seed 1 && python eval.py --x 2'\n", CLIP,
     "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "sbatch --nodes 1 --wrap=\"python train.py --seed 1\"\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    ("hf", "CMD=\"python train.py --seed 1\"\necho $CMD\neval $CMD\n", CLIP, "--seed 1", "--seed 1 --max_grad_norm 0.5"),
    # launchers and scripts
    ("openrlhf", "ray job submit --address=x -- python3 -m openrlhf.cli.train_ppo_ray --max_norm 1.0\n", CLIP, "1.0", "0.5"),
    ("hf", "torchrun --nproc-per-node 8 train.py --learning_rate 1e-4\n", {"processes_per_node": 4}, "8", "4"),
    ("megatron", "D=(--nproc_per_node 8)\ntorchrun ${D[@]} pretrain_gpt.py --lr 1 --clip-grad 1\n", {"processes_per_node": 4}, "8", "4"),
    ("megatron", "D=\"--nproc_per_node 8\"\npython -m torch.distributed.launch $D pretrain_gpt.py --lr 1\n",
     {"gradient_clip_norm": 0.5}, "--lr 1", "--lr 1 --clip-grad 0.5"),
    # switches that say no
    ("megatron", "torchrun pretrain.py --no-sequence-parallel --lr 1\n", {"sequence_parallel": True}, "--no-seq", "--seq"),
    ("hf", "python train.py --no_gradient_checkpointing --seed 1\n", {"activation_checkpointing": True},
     "--no_gradient_checkpointing", "--gradient_checkpointing True"),
    ("vllm", "vllm serve m --no-enable-prefix-caching --seed 1\n", {"prefix_caching": True}, "--no-enable", "--enable"),
    # what the command line says holds over the file that the script writes
    ("hf", 'cat > d.json <<E\n{"gradient_clipping": 1.0, "zero_optimization": {}}\nE\ndeepspeed train.py --max_grad_norm 2.0 --seed 1\n',
     CLIP, "2.0", "0.5"),
    # a shared variable stays
    ("hf", "B=8\npython train.py --per_device_train_batch_size $B --output_dir out_$B\n", {"micro_batch_size": 4}, "size $B", "size 4"),
    ("hf", "B=8\nG=$((B*8))\npython train.py --per_device_train_batch_size ${B} --x $G\n", {"micro_batch_size": 4}, "${B}", "4"),
    ("hf", 'B=8\npython train.py --per_device_train_batch_size "$B"\npython eval.py --n $B\n', {"micro_batch_size": 4}, '"$B"', '"4"'),
    ("hf", "X=1e-4\npython a.py --learning_rate $X --weight_decay $X\n", LR, "rate $X", "rate 1e-6"),
    ("hf", 'X=1e-4\necho "rate $X"\npython a.py --learning_rate $X\n', LR, "X=1e-4", "X=1e-6"),
    ("hf", 'X=1e-4  # not $X\npython a.py --learning_rate $X\n', LR, "X=1e-4", "X=1e-6"),
    # scheduler headers
    ("hf", "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:h100:8\necho\n#SBATCH --late=1\nsrun python train.py --seed 1\n",
     {"cpus_per_task": 8}, "h100:8\n", "h100:8\n#SBATCH --cpus-per-task=8\n"),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "text", "edits", "old", "new"), CHANGED)
def test_the_right_place_is_changed(framework, text, edits, old, new):
    assert text.count(old) == 1, "the case is told by what stands there once"
    got = change(text, "a.sh", edits, framework)
    assert got.text == text.replace(old, new), got.snippets
    assert not got.snippets and change(got.text, "a.sh", edits, framework).text == got.text


def test_a_here_document_and_the_command_line_that_agree_go_on_agreeing():
    text = (
        'cat > d.json <<E\n{"gradient_clipping": 1.0}\nE\ndeepspeed train.py --max_grad_norm 1.0 --deepspeed d.json\n'
    )
    for framework in ("hf", "deepspeed"):
        assert change(text, "a.sh", CLIP, framework).text == text.replace("1.0", "0.5")


NOT_CHANGED = [
    ("if [ x ]; then\n  A=(--learning_rate 1)\nfi\npython train.py ${A[@]}\n", LR, "branch"),
    ("if [ x ]; then\n  python train.py --seed 1\nfi\n", CLIP, "branch"),
    ("for i in 1 2; do\n  python train.py --seed $i\ndone\n", CLIP, "loop"),
    ("f() {\n  python train.py --seed 1\n}\nf\n", CLIP, "function"),
    ("case $1 in\n  a) python train.py --seed 1 ;;\nesac\n", CLIP, "branch"),
    ("[ -f x ] && A+=(--learning_rate 1)\npython train.py ${A[@]}\n", LR, "branch"),
    ("sbatch train.slurm --seed 1\n", CLIP, "no command"),
    ("sbatch --nodes 2 run.sh\n", CLIP, "no command"),
    ("python -m data.prepare --seed 1\npip install x\n", CLIP, "no command"),
    ('bash -c "python train.py --name \\"a b\\" --seed 1"\n', CLIP, "quotes"),
    ("if [ x ]; then B=4; fi\npython train.py --per_device_train_batch_size $B\n", {"micro_batch_size": 2}, "branch"),
    ("python train.py --bf16 --no-bf16\n", {"bf16": True}, "different"),
    ("python train.py --learning_rate 1 $@\npython train2.py --learning_rate 2\n", LR, "different"),
    ("torchrun $UNKNOWN train.py --seed 1\n", {"max_restarts": 3}, "$UNKNOWN"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "edits", "reason"), NOT_CHANGED)
def test_what_may_never_run_or_cannot_be_told_is_a_snippet(text, edits, reason):
    got = change(text, "a.sh", edits, "hf")
    assert (got.text, got.edits) == (text, ())
    (snippet,) = got.snippets
    assert reason in snippet.reason


def test_parts_of_an_array_are_taken_out_where_they_stand():
    text = "A=(--seed 1)\nA+=(\n  --learning_rate 1e-4\n  --bf16\n)\npython train.py ${A[@]}\n"
    assert change(text, "a.sh", {"learning_rate": REMOVE}, "hf").text == text.replace("  --learning_rate 1e-4\n", "")

"""Environment variables: changed where they stand, merged, put where they reach the training, taken out byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.environment_changes import change_variables
from traindoctor.agent.repair.patching.spelling import REMOVE

ALLOC, SEGMENTS = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
TRAIN = "python train.py --learning_rate 1e-4\n"
CHANGED = [
    # (file, before, variable, value, after)
    ("a.sh", f"export NCCL_DEBUG=INFO\n{TRAIN}", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=WARN\n{TRAIN}"),
    ("a.sh", f"export A=1 NCCL_DEBUG='INFO' B=2  # c\n{TRAIN}", "NCCL_DEBUG", "WARN", f"export A=1 NCCL_DEBUG='WARN' B=2  # c\n{TRAIN}"),
    ("a.sh", f"A=1 NCCL_DEBUG=INFO {TRAIN}", "NCCL_DEBUG", "WARN", f"A=1 NCCL_DEBUG=WARN {TRAIN}"),
    ("a.sh", f"env A=1 NCCL_DEBUG=INFO {TRAIN}", "NCCL_DEBUG", "WARN", f"env A=1 NCCL_DEBUG=WARN {TRAIN}"),
    ("a.sh", f"export NCCL_DEBUG=${{NCCL_DEBUG:-INFO}}\n{TRAIN}", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=${{NCCL_DEBUG:-WARN}}\n{TRAIN}"),
    ("a.sh", f"NCCL_DEBUG=INFO\n{TRAIN}", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=WARN\n{TRAIN}"),
    ("a.sh", f"NCCL_DEBUG=INFO\nexport NCCL_DEBUG\n{TRAIN}", "NCCL_DEBUG", "WARN", f"NCCL_DEBUG=WARN\nexport NCCL_DEBUG\n{TRAIN}"),
    ("a.sh", f"srun --export=ALL,NCCL_DEBUG=INFO,B=2 {TRAIN}", "NCCL_DEBUG", "WARN", f"srun --export=ALL,NCCL_DEBUG=WARN,B=2 {TRAIN}"),
    ("a.sh", f"mpirun -np 8 -x NCCL_DEBUG=INFO -x PATH {TRAIN}", "NCCL_DEBUG", "WARN", f"mpirun -np 8 -x NCCL_DEBUG=WARN -x PATH {TRAIN}"),
    ("a.sh", f"docker run --env=NCCL_DEBUG=INFO image {TRAIN}", "NCCL_DEBUG", "WARN", f"docker run --env=NCCL_DEBUG=WARN image {TRAIN}"),
    ("a.sh", f"export {ALLOC}=max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2]\n{TRAIN}", ALLOC, SEGMENTS,
     f"export {ALLOC}='max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2],expandable_segments:True'\n{TRAIN}"),
    ("a.sh", f'export {ALLOC}="expandable_segments:False,garbage_collection_threshold:0.8"\n{TRAIN}', ALLOC, SEGMENTS,
     f'export {ALLOC}="expandable_segments:True,garbage_collection_threshold:0.8"\n{TRAIN}'),
    ("a.sh", f"export PYTORCH_ALLOC_CONF=a:1\n{TRAIN}", ALLOC, SEGMENTS, f"export PYTORCH_ALLOC_CONF=a:1,expandable_segments:True\n{TRAIN}"),
    ("a.sh", f"export NCCL_DEBUG_SUBSYS=INIT,NET\n{TRAIN}", "NCCL_DEBUG_SUBSYS", "NET,COLL", f"export NCCL_DEBUG_SUBSYS=INIT,NET,COLL\n{TRAIN}"),
    ("a.sh", f"export LD_PRELOAD=/a.so\n{TRAIN}", "LD_PRELOAD", "/b.so", f"export LD_PRELOAD=/b.so:/a.so\n{TRAIN}"),
    ("a.sh", f"export LD_LIBRARY_PATH=/efa:$LD_LIBRARY_PATH\n{TRAIN}", "LD_LIBRARY_PATH", "/x", f'export LD_LIBRARY_PATH="/x:/efa:$LD_LIBRARY_PATH"\n{TRAIN}'),
    ("a.env", "A=1\nexport NCCL_DEBUG=\"INFO\"  # c\r\nB=2", "NCCL_DEBUG", "WARN", "A=1\nexport NCCL_DEBUG=\"WARN\"  # c\r\nB=2"),
    ("a.py", "import os\nos.environ['NCCL_DEBUG'] = 'INFO'  # c\nimport torch\n", "NCCL_DEBUG", "WARN", "import os\nos.environ['NCCL_DEBUG'] = 'WARN'  # c\nimport torch\n"),
    ("a.py", 'import os\nos.environ.setdefault("NCCL_DEBUG", "INFO")\nimport torch\n', "NCCL_DEBUG", "WARN", 'import os\nos.environ.setdefault("NCCL_DEBUG", "WARN")\nimport torch\n'),
    # put in
    ("a.sbatch", f"#!/bin/bash\n#SBATCH -N 2\nset -e\nexport A=1\nmodule load cuda\nconda activate x\n\nsrun {TRAIN}", "NCCL_DEBUG", "WARN",
     f"#!/bin/bash\n#SBATCH -N 2\nset -e\nexport A=1\nmodule load cuda\nconda activate x\n\nexport NCCL_DEBUG=WARN\nsrun {TRAIN}"),
    ("a.sh", f"export A=1  # first\necho a\n{TRAIN}", "NCCL_DEBUG", "WARN", f"export A=1  # first\nexport NCCL_DEBUG=WARN\necho a\n{TRAIN}"),
    ("a.sh", f"cd /x && \\\n  {TRAIN}", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=WARN\ncd /x && \\\n  {TRAIN}"),
    ("a.sh", f"if [ x ]; then\n  {TRAIN}fi\n", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=WARN\nif [ x ]; then\n  {TRAIN}fi\n"),
    ("a.sh", f"main()\n{{\n  {TRAIN}}}\nmain\n", "NCCL_DEBUG", "WARN", f"export NCCL_DEBUG=WARN\nmain()\n{{\n  {TRAIN}}}\nmain\n"),
    ("a.sh", "python prepare.py\npython train.py --lr 1\npython eval.py", "NCCL_DEBUG", "WARN", "python prepare.py\nexport NCCL_DEBUG=WARN\npython train.py --lr 1\npython eval.py"),
    ("a.sh", "python train.py --lr 1", "NCCL_DEBUG", "WARN", "export NCCL_DEBUG=WARN\npython train.py --lr 1"),
    ("a.sh", "export A=1\r\npython train.py --lr 1\r\n", "NCCL_DEBUG", "WARN", "export A=1\r\nexport NCCL_DEBUG=WARN\r\npython train.py --lr 1\r\n"),
    ("a.sh", f"cat <<EOF > x\nexport Z=1\nEOF\n{TRAIN}", "NCCL_DEBUG", "WARN", f"cat <<EOF > x\nexport Z=1\nEOF\nexport NCCL_DEBUG=WARN\n{TRAIN}"),
    ("a.sh", 'A="a\nb"\nbash -c "python train.py --lr 1"\n', "NCCL_DEBUG", "WARN", 'A="a\nb"\nexport NCCL_DEBUG=WARN\nbash -c "python train.py --lr 1"\n'),
    ("a.sh", "ssh h1 'cd /x && torchrun train.py --lr 1' &\nssh h2 'cd /x && torchrun train.py --lr 1'\n", "NCCL_DEBUG", "WARN",
     "ssh h1 'cd /x && NCCL_DEBUG=WARN torchrun train.py --lr 1' &\nssh h2 'cd /x && NCCL_DEBUG=WARN torchrun train.py --lr 1'\n"),
    ("a.sh", f"mpirun --allow-run-as-root -np 8 {TRAIN}", "NCCL_DEBUG", "WARN", f"mpirun -x NCCL_DEBUG=WARN --allow-run-as-root -np 8 {TRAIN}"),
    ("a.sh", f"srun --export=A=1 {TRAIN}", "NCCL_DEBUG", "WARN", f"srun --export=A=1,NCCL_DEBUG=WARN {TRAIN}"),
    ("a.sh", "ray job submit -- python train.py --lr 1\n", "NCCL_DEBUG", "WARN",
     "ray job submit --runtime-env-json='{\"env_vars\": {\"NCCL_DEBUG\": \"WARN\"}}' -- python train.py --lr 1\n"),
    ("a.sh", "ray start --head\npython train.py --lr 1\n", "NCCL_DEBUG", "WARN", "export NCCL_DEBUG=WARN\nray start --head\npython train.py --lr 1\n"),
    ("a.sh", "deepspeed --hostfile h train.py --deepspeed d.json\n", "NCCL_DEBUG", "WARN", "export NCCL_DEBUG=WARN\ndeepspeed --hostfile h train.py --deepspeed d.json\n"),
    ("a.env", "export A=1", "NCCL_DEBUG", "WARN", "export A=1\nexport NCCL_DEBUG=WARN"),
    ("a.py", '"""d"""\nfrom __future__ import annotations\n\nimport os\nimport sys\n\nimport torch\n', "NCCL_DEBUG", "WARN",
     '"""d"""\nfrom __future__ import annotations\n\nimport os\nimport sys\n\nos.environ["NCCL_DEBUG"] = "WARN"\nimport torch\n'),
    ("a.py", "#!/usr/bin/env python\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n", "NCCL_DEBUG", "WARN",
     '#!/usr/bin/env python\nimport os\nos.environ["NCCL_DEBUG"] = "WARN"\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n'),
    ("launch", f"#!/bin/bash\n{TRAIN}", "NCCL_DEBUG", "WARN", f"#!/bin/bash\nexport NCCL_DEBUG=WARN\n{TRAIN}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "variable", "value", "after"), CHANGED)
def test_a_variable_is_changed_or_put_in(name, before, variable, value, after):
    got = change_variables(before, name, {variable: value})
    assert got.text == after, got.snippets
    assert got.edits and not got.snippets
    again = change_variables(got.text, name, {variable: value})
    assert (again.text, again.edits, again.snippets) == (after, (), ())


NOT_WRITTEN = [
    # (file, text, variable, value, a word of the reason, what to put in by hand)
    ("a.sh", "deepspeed --hostfile h train.py --deepspeed d.json\n", ALLOC, SEGMENTS, ".deepspeed_env", f"{ALLOC}={SEGMENTS}"),
    ("a.sh", f"mpiexec -n 8 {TRAIN}", "NCCL_DEBUG", "WARN", "MPI", "-x NCCL_DEBUG=WARN"),
    ("a.sh", f"srun --export=NONE {TRAIN}", "NCCL_DEBUG", "WARN", "--export", "--export=ALL,NCCL_DEBUG=WARN"),
    ("a.sh", f"#SBATCH --export=NONE\nsrun {TRAIN}", "NCCL_DEBUG", "WARN", "--export", "--export=ALL,NCCL_DEBUG=WARN"),
    ("a.sh", "ray job submit --runtime-env=e.yaml -- python train.py --lr 1\n", "NCCL_DEBUG", "WARN", "runtime_env", '{"env_vars": {"NCCL_DEBUG": "WARN"}}'),
    ("a.sh", f"kubectl exec pod -- {TRAIN}", "NCCL_DEBUG", "WARN", "kubectl", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"sudo {TRAIN}", "NCCL_DEBUG", "WARN", "sudo", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"if [ x ]; then export NCCL_DEBUG=INFO; fi\n{TRAIN}", "NCCL_DEBUG", "WARN", "branch", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"export NCCL_DEBUG=INFO\nexport NCCL_DEBUG=VERSION\n{TRAIN}", "NCCL_DEBUG", "WARN", "different", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"export NCCL_DEBUG=INFO\nunset NCCL_DEBUG\n{TRAIN}", "NCCL_DEBUG", "WARN", "unset", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"cat > e <<E\nNCCL_DEBUG=INFO\nE\n{TRAIN}", "NCCL_DEBUG", "WARN", "not read", "export NCCL_DEBUG=WARN"),
    ("a.sh", f"export {ALLOC}=$CONF\n{TRAIN}", ALLOC, SEGMENTS, "filled in", f"export {ALLOC}={SEGMENTS}"),
    ("a.sh", "echo hello\n", "NCCL_DEBUG", "WARN", "no command", "export NCCL_DEBUG=WARN"),
    ("a.sh", TRAIN, "NCCL_DEBUG", "a\nb", "cannot be set", ""),
    ("Dockerfile", "FROM x\n", "NCCL_DEBUG", "WARN", "image", "ENV NCCL_DEBUG=WARN"),
    ("pod.yaml", "kind: Pod\n", "NCCL_DEBUG", "WARN", "no launch script", '- name: NCCL_DEBUG\n  value: "WARN"'),
    ("docker-compose.yml", "services: {}\n", "NCCL_DEBUG", "WARN", "no launch script", 'NCCL_DEBUG: "WARN"'),
    ("a.py", "import torch\n", "LD_PRELOAD", "/x.so", "before the code", 'os.environ["LD_PRELOAD"] = "/x.so"'),
    ("a.py", "import os\nif a:\n    os.environ['NCCL_DEBUG'] = 'INFO'\nimport torch\n", "NCCL_DEBUG", "WARN", "branch", 'os.environ["NCCL_DEBUG"] = "WARN"'),
    ("a.py", "import os\nos.environ['NCCL_DEBUG'] = level()\nimport torch\n", "NCCL_DEBUG", "WARN", "computed", 'os.environ["NCCL_DEBUG"] = "WARN"'),
    ("a.py", "import torch\ndef f(:\n", "NCCL_DEBUG", "WARN", "", 'os.environ["NCCL_DEBUG"] = "WARN"'),
    ("a.env", "A=1\n", "LD_LIBRARY_PATH", "/x", "search path", 'export LD_LIBRARY_PATH="/x${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'),
    ("a.env", "NCCL_DEBUG=1\nNCCL_DEBUG=2\n", "NCCL_DEBUG", "WARN", "twice", "export NCCL_DEBUG=WARN"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "variable", "value", "reason", "by_hand"), NOT_WRITTEN)
def test_what_cannot_be_written_is_told_with_the_line_to_put_in(name, text, variable, value, reason, by_hand):
    got = change_variables(text, name, {variable: value})
    assert (got.text, got.edits) == (text, ())
    (snippet,) = got.snippets
    assert reason in snippet.reason and "\n" not in snippet.reason
    if by_hand:
        assert snippet.text == by_hand


TAKEN_OUT = [
    ("a.sh", f"export NCCL_DEBUG=INFO  # c\n{TRAIN}", TRAIN),
    ("a.sh", f"export A=1 NCCL_DEBUG=INFO\n{TRAIN}", f"export A=1\n{TRAIN}"),
    ("a.sh", f"export NCCL_DEBUG=INFO B=2\n{TRAIN}", f"export B=2\n{TRAIN}"),
    ("a.sh", f"NCCL_DEBUG=INFO \\\nA=1 {TRAIN}", f"A=1 {TRAIN}"),
    ("a.sh", f"mpirun -np 2 -x NCCL_DEBUG=INFO {TRAIN}", f"mpirun -np 2 {TRAIN}"),
    ("a.sh", f"srun --export=ALL,NCCL_DEBUG=INFO {TRAIN}", f"srun --export=ALL {TRAIN}"),
    ("a.env", "A=1\nNCCL_DEBUG=INFO", "A=1"),
    ("a.py", "import os\nos.environ['NCCL_DEBUG'] = 'INFO'\nimport torch\n", "import os\nimport torch\n"),
]


@pytest.mark.parametrize(("name", "text", "left"), TAKEN_OUT)
def test_a_variable_is_taken_out(name, text, left):
    assert change_variables(text, name, {"NCCL_DEBUG": REMOVE}).text == left


def test_settings_that_are_variables_go_the_same_way():
    """`change` puts them in by the same rules: into Ray's own environment, not above its command."""
    text = 'ray job submit --runtime-env-json=\'{"env_vars": {"A": "1"}}\' -- python train.py --learning_rate 1\n'
    got = change(text, "a.sh", {"nccl_debug": "WARN"}, "hf")
    assert got.text == text.replace('"1"}}', '"1", "NCCL_DEBUG": "WARN"}}')
    assert change(got.text, "a.sh", {"nccl_debug": REMOVE}, "hf").text == text


LINES = st.lists(
    st.sampled_from([
        "set -e", "export A=1", "export B='x y' C=2", "# NCCL_DEBUG=INFO", "source env.sh", "module load cuda", "echo a",
        "X=1", "ARGS=(--seed 1)", "if [ -f x ]; then\n  echo b\nfi", "cat <<EOF\nexport Q=1\nEOF", "cd /x || exit 1",
        "f() {\n\texport F=1\n}", "for i in 1 2; do echo $i; done", "", "python prepare.py --out x", "ulimit -n 1",
        "case $1 in\n  a) export G=1 ;;\nesac", "mkdir -p o && touch o/x", "NAME='a\nb'",
    ]), max_size=7,
)  # fmt: skip
COMMANDS = st.sampled_from([
    "python train.py --learning_rate 1e-4", "A=1 torchrun --nproc_per_node 8 train.py \\\n  --learning_rate 1e-4",
    "srun bash -c 'python train.py --learning_rate 1'", "ssh h \"cd x && python train.py --learning_rate 1\"",
    "docker run -e A=1 image python train.py --learning_rate 1", "cd x && accelerate launch train.py --learning_rate 1",
    "if true; then\n\tpython train.py --learning_rate 1\nfi", "(cd x; python train.py --learning_rate 1)",
    "mpirun -x A -np 2 python train.py --learning_rate 1", "python train.py --learning_rate 1 2>&1 | tee log",
    "ray job submit --runtime-env-json='{\"env_vars\": {\"A\": \"1\"}}' -- python train.py --learning_rate 1",
])  # fmt: skip
VALUES = st.sampled_from(["1", "WARN", "a:b,c:d", "x y", "it", "/p/q:/r", "a=b", "1,2"])


@settings(max_examples=150, deadline=None)
@given(LINES, COMMANDS, LINES, VALUES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_put_in_read_back_and_taken_out(before, command, behind, value, end, last):
    text = end.join(row for line in [*before, command, *behind] for row in line.split("\n")) + (end if last else "")
    got = change_variables(text, "a.sh", {"DOCTOR_TEST": value})
    if got.snippets:
        assert got.text == text
        return
    assert "\n" not in text or got.text.count("\r\n") == got.text.count("\n") * (end == "\r\n")
    again = change_variables(got.text, "a.sh", {"DOCTOR_TEST": value})
    assert (again.text, again.edits, again.snippets) == (got.text, (), ())
    other = change_variables(got.text, "a.sh", {"DOCTOR_TEST": "other"})
    assert other.text != got.text or other.snippets
    assert change_variables(got.text, "a.sh", {"DOCTOR_TEST": REMOVE}).text == text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["A=1", "export B='x y'  # c", "# c", "", "C="]), max_size=5), VALUES, st.booleans())
def test_env_files_come_back(rows, value, last):
    text = "\n".join(rows) + ("\n" if last and rows else "")
    got = change_variables(text, ".env", {"DOCTOR_TEST": value})
    assert not got.snippets and len(got.text.splitlines()) == len(text.splitlines()) + 1
    assert change_variables(got.text, ".env", {"DOCTOR_TEST": value}).text == got.text
    back = change_variables(got.text, ".env", {"DOCTOR_TEST": REMOVE}).text
    assert back == text

"""Numbers that runs print about their own tensors."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.profiles.numerics import (
    compared_sums,
    dump_rows,
    low_precision_counters,
    printed_tensors,
)
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.replicas_tools import numerics

DUMP = """Detected inf/nan during batch_number=0
Last 21 forward frames:
abs min  abs max  metadata
                  encoder.block.1.layer.0 T5LayerNorm
1.00e-03 2.00e+01 input[0]
1.00e-03 1.50e+02 output
                  encoder.block.2.layer.1.dropout Dropout
2.57e-04 6.27e+04 output
                  encoder.block.2.layer.1 T5LayerFF
1.79e-06 6.27e+04 input[0]
3.18e-04      inf output
"""


def look(tmp_path, text, name="train.log"):
    (tmp_path / name).write_text(text)
    found: dict[str, list] = {}
    for e in numerics(Workspace([tmp_path])).evidence:
        found.setdefault(e.key, []).append(e)
    return found


def test_activations_near_the_limit_then_infinite(tmp_path):
    found = look(tmp_path, DUMP)
    assert [e.text for e in found["numerics.near_fp16_max"]] == [
        "2.57e-04 6.27e+04 output",
        "1.79e-06 6.27e+04 input[0]",
    ]
    assert found["numerics.first_nonfinite_module"][0].value.startswith("encoder.block.2.layer.1 T5LayerFF")
    assert found["numerics.first_nonfinite_module"][0].line == 11
    assert found["numerics.activations_grow"][0].value > 400


def test_tensors_before_and_after_training(tmp_path):
    zero = "tensor([[0., 0.],\n        [0., 0.]], device='cuda:0')"
    found = look(tmp_path, f"before training lora_B {zero}\nstep 1 loss 2\nafter training lora_B {zero}\n")
    assert [e.line for e in found["numerics.tensor_unchanged"]] == [4, 1]
    assert found["numerics.tensor_zero_after_training"][0].line == 4
    moved = look(tmp_path, f"before training lora_B {zero}\nafter training lora_B {zero.replace('[[0.', '[[0.1')}\n")
    assert "numerics.tensor_unchanged" not in moved
    assert "numerics.tensor_changed" in moved


def test_labels_all_masked(tmp_path):
    batch = "{'input_ids': tensor([[5, 6, 7]]),\n 'labels': tensor([[-100, -100,\n   -100]])}\n"
    assert look(tmp_path, batch)["numerics.labels_all_masked"][0].line == 2
    assert "numerics.labels_all_masked" not in look(tmp_path, batch.replace("-100]])", "7]])"))


def test_sums_rounded_to_sixteen_bits(tmp_path):
    found = look(
        tmp_path,
        "rank sums\nexact_sum      40840\nall_reduce_result      41216\n\nexact_sum  1000\nall_reduce_result  1000\n",
    )
    assert {e.line for e in found["numerics.exact_vs_reduced"]} == {2, 3}
    assert found["numerics.bf16_counter"][0].value == "bfloat16"
    other = look(tmp_path, "exact_sum      40840\nall_reduce_result      40841\n")
    assert "numerics.bf16_counter" not in other


def test_anomaly_detection(tmp_path):
    found = look(tmp_path, "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.\n")
    assert found["numerics.nan_in_backward"][0].value == "LogBackward0"


def test_nothing_to_see(tmp_path):
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert numerics(Workspace([tmp_path])).outcome == "not_applicable"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["abs min abs max metadata", "1e5 inf output", "x tensor([[0., [", "]])", "exact 5", "result  6"]
        )
        | st.text(max_size=60),
        max_size=20,
    )
)
def test_no_text_breaks_the_readers(texts):
    lines = [Line(i + 1, 0, t.encode()) for i, t in enumerate(texts)]
    for read in (dump_rows, printed_tensors, compared_sums, low_precision_counters):
        list(read(lines))


def test_two_implementations_of_one_quantity(tmp_path):
    found = look(
        tmp_path,
        "loss without ignored targets\n  eager    2.3026\n  compiled 2.3027\nloss with ignored targets\n"
        "  eager: tensor(2.3026, device='cuda:0')\n  compiled: tensor(9.1202, device='cuda:0')\n",
    )
    told = found["numerics.implementations_differ"]
    assert {e.line for e in told} == {5, 6} and told[0].value == {"eager": 2.3026, "compiled": 9.1202}


def test_times_of_implementations_are_no_disagreement(tmp_path):
    found = look(tmp_path, "forward pass, ms\n  eager    12.5\n  compiled  5.1\nexact\n")
    assert "numerics.implementations_differ" not in found


def test_a_run_beside_its_continuation(tmp_path):
    table = "step  baseline  resumed\n100  2.100  2.100\n101  2.090  88.4\n102  2.080  60.2\n"
    found = look(tmp_path, table)
    assert {e.line for e in found["numerics.update_differs_after_load"]} == {2, 3}
    other = look(tmp_path, "step  baseline  resumed\n100  2.100  9.7\n101  2.090  9.6\n")
    assert "numerics.differs_after_load" in other and "numerics.update_differs_after_load" not in other
    same = look(tmp_path, "step  baseline  resumed\n100  2.100  2.101\n101  2.090  2.088\n")
    assert "numerics.differs_after_load" not in same

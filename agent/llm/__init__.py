"""The planner that asks a model: state rendered as messages, answers read back strictly, everything bounded.

Imports verdict and below; only `wire` and what it uses reach a network.

`llm_planner` goes through one step of the same graph and state as the offline planner, which takes over from the same
state wherever the model fails. `brief` is the first message, `framing` what fits, which tools are offered and what a
model is told (`knowledge/prompt.yaml`), `dialogue` what was said, as plain data. `model_calls` and `conclusion` read an
answer: calls, or a `diagnosis` with the lines it cites, which `read_lines` makes evidence of. A model never makes a
status: its words go through the gate, its verdict adds a vote if one of its sentences stands on evidence. What fails
goes back once, then is dropped and told. `wire` redacts what leaves, bounds what comes back and has a name for every
trouble (`evals/faults.py` has the kinds). `model_settings` says which model, with which key.
"""

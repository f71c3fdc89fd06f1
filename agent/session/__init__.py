"""One diagnosis from question to report: the graph, its state and store, answers, the team's history.

Imports llm, repair, verdict and below.

State is plain data in LangGraph's SQLite checkpointer (`store`, durability `sync`), so a killed session goes on where
it was; workspace and planner travel in the context and are made again. `conclude` takes the status from predicates
alone, sends each sentence through the gate and lists what is cited. A question that asks for no diagnosis goes the same
way and ends in an `answer` from the calls that answer it. `history` keeps a team's diagnoses and corrections in SQLite
with a rollback journal, as it may lie on a shared path; it waits two seconds at most and never costs a diagnosis.
"""

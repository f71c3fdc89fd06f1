"""From evidence to a verdict: predicates, the ranking, the offline planner, the gate, what a question means.

Pure: the same evidence always gives the same verdict. Imports reading and below.

A predicate over a key is true, false or missing: a tool that looked and found nothing makes `exists` false, a number
that is printed nowhere leaves a comparison missing. Each playbook collects a score on the scale of log odds (the
constants stand in `ranking`): it starts at -2; signature lines, `requires`, `any_of`, `supports` and `contradicts` move
it, so do a credible cause upstream, the words of the question (little), and what this team corrected before (bounded).
A softmax with a null option at 0 makes probabilities that add up to less than 1, none above 0.97. *Confirmed* needs all
required predicates (or a decisive line), nothing against it, no rival within one unit and a probability of one half.
What a run merely asked for confirms nothing; what the question asserts can never be cited. Before evidence counts,
`gate` looks each quoted line up again at its offset; `salience` sets other jobs' kernel lines aside and chooses what a
report shows.
"""

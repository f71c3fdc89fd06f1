"""The ranking's weights, fitted on what rules do for sources they were not written for: `make weights`.

`gathered` diagnoses incidents and transplants and keeps their evidence; `left_out` takes away the rules that hold for
too few other sources; `fit` fits the weights and measures each set as it stands and with its source left out.
"""

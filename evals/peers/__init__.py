"""Other programs that explain failed trainings, on the same incidents: `python -m traindoctor.evals.peers`.

Each is run as it is, in an environment of its own (`build/peers`), on the same copy of the files that doctor gets. What
its answers count as is written down in `mapping.yaml`, and so is what it is not made for.
"""

"""The reader's training and measure: `make reader`, `python -m traindoctor.evals.reader.train --measure`."""

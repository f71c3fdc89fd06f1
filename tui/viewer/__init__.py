"""A file of the run at a cited line, with what stands around it and what other ranks say there."""

"""What a run left behind, parsed once and kept on the workspace; one folder a kind of matter.

`run` and `scan` are the ground, the other folders stand on them in the order of `tests/test_architecture.py`.
Imports safety and core.

Nothing of a run is executed, imported or unpickled. Checkpoints are read by their bytes: the zip directory, pickle
opcodes, the safetensors header, the metadata of distributed saves; every byte once, in blocks, by `pread`, as a mapped
file that shrinks kills the process. What could not be read is `unknown`, never `clean`. The machine itself is asked
only where it is the run's own (`ws.live`), always in a child with a time limit (`agent/jobs/probes/`), since NVML and
paths on dead servers hang; all of it goes through `ws.shell`, so that a recording replays. What the machine says now
has other keys (`gpu.*_now`) where it proves nothing about a run that is over.
"""

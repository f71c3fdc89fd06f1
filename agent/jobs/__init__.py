"""Jobs and machines around a diagnosis: supervised, followed, asked over many nodes; people told of them.

Imports telling and below, and starts diagnoses as processes of their own.

`supervisor` runs while the job runs, on the standard library alone: `loop` waits for signals, `relay` is a process of
its own that copies output, so that the job outlives a killed supervisor, `watcher` looks once a second. The diagnosis
is a child with a time limit; whatever happens to it, the exit code is the job's. `watching` follows jobs of others
through their files and keeps windows, never whole curves. `nodes` and `sweep` run programs of the standard library on
every node of an allocation, by Slurm, Ray or here. `notices` puts messages into a spool and starts a sender: nobody
waits for a network. `hooks` are files for schedulers. `probes` are the small programs that look at this machine.
"""

"""Doctor as a Model Context Protocol server: its read tools, search and whole diagnoses for coding agents.

runs        which folders a client may look at, and the workspaces kept of them between calls
outgoing    the one door: secrets taken out, text of a run made inert, long texts cut with counts
offer       what a client sees of a tool and gets from it
offers      everything that is offered: each tool of risk `read`, search, and a whole diagnosis (`diagnosing`)
resources   playbooks and finished reports, read by address
server      the protocol, over standard input and output
"""

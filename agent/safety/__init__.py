"""What keeps secrets in and hostile text out: the redactor, disguises, and the doors to terminals and prompts.

Imports core.

Everything that leaves the machine or is made to be passed on goes through `redact`, which counts what it took out;
`disguises` sees a text without what may hide a secret in it. `fences` has the two doors for text of a run: `inert` and
`one_line` for terminals and files, `fenced` for prompts.
"""

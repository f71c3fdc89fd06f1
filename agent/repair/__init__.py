"""From a verdict to its repair: recipes, patches written and undone, salvage, starting again.

Imports verdict and below. Comes after the verdict and may not cost it.

`treatment` turns a playbook's recipe into patches: `recipe` knows which files may change (never a record, a healthy
run, another variant) and what each setting becomes, `amounts` what the evidence tells of how much, `treat` places each
setting, reads the run again as it would be, and withholds what does not come out. `patching` edits one text in the
words of its framework and reads it back. `applying` plans a set whole, keeps the old bytes in a journal on disk, stages
beside the files and renames one by one: a kill at any moment leaves each file old or new, and the journal tells the
rest. `salvage` writes new files only. `operations` fills the placeholders of commands from evidence, where one safe
value is known; `restart` says whether starting again helps, from where, and what it loses.
"""

"""What a run was asked to do and says it did: one map of names, readers of every form, versions, and lints."""

"""Which node or link of an allocation is bad."""

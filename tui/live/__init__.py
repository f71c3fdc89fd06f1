"""A running job, followed: what its files say is looked at again as they grow."""

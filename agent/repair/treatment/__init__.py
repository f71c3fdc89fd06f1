"""Which files may change, what each setting has to become, and what is done by hand."""

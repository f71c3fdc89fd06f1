"""A job that doctor runs: started as it would be without, its logs kept, its end or standstill told and diagnosed."""

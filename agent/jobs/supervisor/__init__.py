"""A job that doctor runs: started as it would be without, its logs kept, its end told and diagnosed.

Standard library alone while the job runs.
"""

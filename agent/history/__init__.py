"""What this team's jobs failed of before: diagnoses by job, cause and node, and what they really were.

place.py        where it is kept: the state folder, or a path that a team shares
database.py     one SQLite file that many hosts may write, a damaged one set aside, nothing that can hang
diagnoses.py    one row for each session; earlier ones of the same job or node
recurring.py    nodes and causes that come again and again
corrections.py  what it really was, by `doctor feedback`
shift.py        how corrections move the ranking of this team
incident.py     an incident of the team's own, made of a corrected session
team.py         what one diagnosis is told of all this, and adds to it
"""

"""The diagnosis: what a run left behind goes in, a report with cited evidence comes out."""

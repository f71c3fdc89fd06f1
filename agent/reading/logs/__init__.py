"""What the logs of a run say: failures as units, ranks, ends, attempts, and the lines that libraries print."""

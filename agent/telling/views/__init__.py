"""What is shown of a run beside a report, without a screen: lines of files, curves, ranks in time."""

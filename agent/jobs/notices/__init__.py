"""Short messages to people when something was found: redacted, retried beside the job, never in its way."""

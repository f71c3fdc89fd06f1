"""Files for schedulers and launchers that call doctor when a job ends."""

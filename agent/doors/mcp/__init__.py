"""Doctor as a Model Context Protocol server: its read tools, search and whole diagnoses for coding agents."""

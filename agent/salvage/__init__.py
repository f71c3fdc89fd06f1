"""Writing new checkpoints out of old ones. The old one is never touched, and nothing here is reachable by a tool."""

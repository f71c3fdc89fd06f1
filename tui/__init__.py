"""The terminal chat. Talks only to agent.session."""

"""Questions that must be answered before the chat goes on. The answer is no unless someone says yes."""

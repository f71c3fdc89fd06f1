"""Playbooks and documents -> chunks -> embeddings -> Chroma, with BM25 beside it. Knows nothing of agent."""

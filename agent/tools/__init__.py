"""The diagnostics, one file a domain. Tools never import each other, the graph or an LLM library."""

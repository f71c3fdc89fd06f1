"""Playbooks and documents -> chunks -> embeddings -> Chroma, with BM25 beside it. Knows nothing of agent.

places, corpus, chunks    what is indexed, cut at its headings
words, lexicon            words and postings: what `lexical` needs
model, transformer, encoder   vectors: of documents by sentence-transformers, of a query by onnxruntime
store, deadline           Chroma as a rebuildable cache, and foreign code on a leash
build, search, documents, status   what the command line and the graph call
"""

"""From a verdict to its repair: words, patches of the run's own files, and what has to be done by hand."""

"""Writing settings into a text, in the words of its framework, and reading it back."""

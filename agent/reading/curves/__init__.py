"""What a run measured: series out of every store and line, their shapes, and what is unusual about them."""

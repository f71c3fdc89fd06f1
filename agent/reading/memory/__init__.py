"""Device memory: what ran out, what a step needs by arithmetic, and what an allocator wrote down."""

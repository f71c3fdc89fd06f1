"""The model planner: state rendered as messages, calls and conclusions read back, everything bounded and checked."""

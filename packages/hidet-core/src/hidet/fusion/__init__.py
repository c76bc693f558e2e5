"""From an optimised graph to tasks: which nodes are computed together, and what they may write over."""

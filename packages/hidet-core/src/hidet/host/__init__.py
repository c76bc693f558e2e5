"""From scheduled tasks to a host program and its modules: memory, segments, sizes, units, kept code."""

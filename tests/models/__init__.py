"""Models that the compiler is tested on, and the check that says whether a compiled model is right."""

"""Windows into what was compiled."""

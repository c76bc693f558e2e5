"""Graph passes that options of hidet-compat ask for."""

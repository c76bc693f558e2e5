"""The compiler: models and graphs to compiled graphs, modules of scripts to functions."""

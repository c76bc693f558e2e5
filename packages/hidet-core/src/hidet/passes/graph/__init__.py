"""Graph passes, one a file: graph in, graph out."""

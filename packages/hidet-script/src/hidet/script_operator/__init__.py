"""Scripts as operators of graphs: nodes that call a module of thread IR."""

"""An example plug-in for hidet: the operator `squared_distance` and its schedule."""

"""Thread IR to a GPU's C or C++, as a `Dialect` tells it.

source      kernels and device functions of a module as one source
function    signatures and statements
expression  expressions; memory adds accesses and calls
scalar      scalar operations by element type
prelude     helpers that a source begins with, piece by piece
cpp         those that any C++ spells the same
"""

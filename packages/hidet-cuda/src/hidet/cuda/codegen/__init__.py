"""Thread IR to CUDA C++ without any #include.

module      kernels and device functions of a module as one source
function    signatures and statements
expression  expressions
scalar      scalar operations by element type
hardware    intrinsics by family
prelude     the C++ that generated code may need, piece by piece
"""

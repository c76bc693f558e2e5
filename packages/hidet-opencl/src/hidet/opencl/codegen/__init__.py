"""Thread IR to OpenCL C: what hidet-gpu's printer of C is told of the language.

dialect     the language as one value
spelling    types, literals, pointers and library
pieces      helpers that a source begins with
intrinsics  operations of the hardware
reserved    names that are not free
module      the kernels of a module as one source, with assertions that note what fails
"""

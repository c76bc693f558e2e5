"""How the operations of `hidet.ir.intrinsics` are spelled: a table of CUDA C++ builtins and one of PTX instructions."""

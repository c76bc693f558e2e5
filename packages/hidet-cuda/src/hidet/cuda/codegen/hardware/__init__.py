"""How the intrinsics of `hidet.gpu` are spelled: a table of CUDA C++ builtins and one of PTX instructions."""

"""CUDA C++ without any #include, printed by `hidet.gpu.codegen`.

module      kernels and device functions of a module as one source
dialect     the language, as the printer takes it
hardware    intrinsics by family, PTX among them
pieces      helpers of NVIDIA's GPUs
statements  assertions, prints, inline PTX
"""

"""hidet's OpenCL target: GPUs of any vendor, and processors with an OpenCL runtime.

devices     what the platforms of this machine offer, and which one a target names
target      thread IR to OpenCL C to a program of the driver, and launches from compiled host code
codegen     OpenCL C as the printer of hidet-gpu takes it
"""

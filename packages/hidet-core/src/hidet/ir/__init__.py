"""The thread IR: what kernels are made of, from schedules down to code generation."""

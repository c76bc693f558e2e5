"""Lowering of tile programs to thread IR, with what a device copies and multiplies by (`machine`)."""

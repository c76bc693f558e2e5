"""Tensors that users hold, and what makes them."""

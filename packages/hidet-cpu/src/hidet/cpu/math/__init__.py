"""Scalar mathematics as thread IR: what replaces exp, sin, pow and the like, which no instruction computes."""

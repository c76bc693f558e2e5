"""Tile programs: kernels as loads, products, maps, reductions and stores of tiles.

A template writes what a block computes (`statements`); a lowering for an architecture turns it into thread IR
(`lower`), deriving barriers, copies in the background, stages and the layout of tiles.
"""

"""Lowering of tile programs to thread IR: copies by `cp.async`, products by `mma.sync` from sm_80 on, or by `wgmma`."""

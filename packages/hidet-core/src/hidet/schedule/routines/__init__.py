"""Routines as thread IR: one target-neutral kernel each, which serves every target that has no better one."""

"""`python -m hidet.cli`: the `hidet` command."""

from hidet.cli import main

main(prog_name="hidet")

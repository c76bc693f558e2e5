"""torch's own tables of tests, compiled by us: `python -m hidet.torch.suite`."""

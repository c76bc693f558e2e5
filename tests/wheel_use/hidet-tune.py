"""Run from an environment that has only hidet-tune and what it needs: its plug-in is found and loads."""

from hidet.plugins.host import load_registry

record = next(record for record in load_registry().plugins if record.owner.plugin == "tune")
assert not record.problems, record.problems
print("hidet-tune is found")

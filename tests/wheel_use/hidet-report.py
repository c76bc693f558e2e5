"""Run from an environment that has only hidet-report and what it needs: its plug-in is found and loads."""

from hidet.plugins.host import load_registry

record = next(record for record in load_registry().plugins if record.owner.plugin == "report")
assert not record.problems, record.problems
for name in ("accuracy", "minify", "profile", "report"):
    assert load_registry().command(name).resolve()
print("hidet-report is found")

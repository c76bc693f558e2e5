"""Schedules of every GPU: they need no matrix unit, and know of a device what `hidet.target.GpuTarget` states."""

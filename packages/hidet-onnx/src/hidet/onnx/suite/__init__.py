"""ONNX's own backend tests, run by us: `python -m hidet.onnx.suite`."""

"""hidet's ONNX front-end."""

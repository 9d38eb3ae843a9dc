"""Transforms as parts of ONNX graphs: a function each, named by its row of the table."""

"""Transforms as parts of ONNX graphs: a function each, named in the transform's row."""

"""The exported ONNX file: views, network, average and temperature as one graph."""

"""ONNX file → PyTorch module → Graph. Needs the extra `onnx`, and is the only room that imports it to read."""

"""A network in ONNX Runtime, as an instance runs it."""

import onnxruntime


def make_session(model):
    """Return the network, ready to run on one thread: an instance has one processor at most."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

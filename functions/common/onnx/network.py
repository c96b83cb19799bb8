"""A network in ONNX Runtime: as it is put into the image, and as an instance runs it."""

import onnxruntime

# Weights of fewer bytes stay in the model's own file.
MIN_WEIGHT_BYTES = 1024


def prepare(model, output):
    """Write the network ``model`` to the directory ``output``: as ``model.onnx`` the graph, simplified
    as far as it does not depend on the processor, so that no instance has to; as ``weights.bin`` its
    weights, which instances map, so that a VM has their pages once."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(output / "model.onnx")
    for key, value in (("file_name", "weights.bin"), ("min_size_in_bytes", str(MIN_WEIGHT_BYTES))):
        options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def make_session(model):
    """Return the network that ``prepare`` has written as ``model``, ready to run on one thread: an
    instance has one processor at most."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Weights in an order that suits the processor better would be a copy of them in each instance.
    options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

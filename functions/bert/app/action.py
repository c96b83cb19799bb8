"""The function itself: how close in meaning sentences are."""

from itertools import combinations
from pathlib import Path

import numpy
from tokenizers import Tokenizer

from network import make_session

HERE = Path(__file__).parent
# More would be a mistake of the caller. Of a long sentence the first 128 tokens count.
MAX_SENTENCES = 32
MAX_CHARACTERS = 2000
# A pair that scores this or more says the same in other words, one below the other has nothing in
# common; for people to read, as the bounds are not sharp.
CLOSE = 0.65
UNRELATED = 0.2


def make_tokenizer():
    """Return the tokenizer; it makes the sentences of a request as long as the longest of them."""
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    tokenizer.enable_padding()
    return tokenizer


session = make_session(HERE / "model.onnx")
tokenizer = make_tokenizer()


def embed(sentences):
    """Return a vector of length 1 for each sentence: the mean of what the network makes of its
    tokens."""
    encodings = tokenizer.encode_batch(sentences)
    tokens = numpy.array([encoding.ids for encoding in encodings], numpy.int64)
    mask = numpy.array([encoding.attention_mask for encoding in encodings], numpy.int64)
    inputs = {
        "input_ids": tokens,
        "attention_mask": mask,
        "token_type_ids": numpy.zeros_like(tokens),
    }
    (states,) = session.run(["last_hidden_state"], inputs)
    vectors = (states * mask[:, :, numpy.newaxis]).sum(axis=1)
    # The length takes care of the divisor of the mean.
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


def describe(score):
    """Return a word for a score."""
    if score >= CLOSE:
        return "close"
    return "unrelated" if score < UNRELATED else "related"


def main(arguments):
    """Embed ``sentences`` and compare each with each.

    Returns the vectors, the scores (1: the same, about 0: nothing in common), and in ``summary`` a
    word for each pair.
    """
    sentences = arguments.get("sentences")
    if not isinstance(sentences, list) or not 1 <= len(sentences) <= MAX_SENTENCES:
        raise ValueError(f"sentences has to be a list of 1 to {MAX_SENTENCES} strings")
    for sentence in sentences:
        if not isinstance(sentence, str) or not 1 <= len(sentence) <= MAX_CHARACTERS:
            raise ValueError(f"a sentence has to be a string of 1 to {MAX_CHARACTERS} characters")
    vectors = embed(sentences)
    scores = vectors @ vectors.T
    pairs = [
        f"{one} and {other}: {describe(scores[one, other])}"
        for one, other in combinations(range(len(sentences)), 2)
    ]
    return {
        "summary": ", ".join(pairs) + ".",
        "scores": scores.round(4).tolist(),
        "embeddings": vectors.round(6).tolist(),
    }

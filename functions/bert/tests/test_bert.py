"""Run by scripts/test-function.sh inside the image, with its interpreter and packages."""

import numpy

from function_test import FunctionTest

# The first two say the same, the third has nothing to do with them.
TRIPLES = [
    (
        "The cat sleeps on the sofa.",
        "A kitten is napping on the couch.",
        "Interest rates rose again this quarter.",
    ),
    (
        "The flight was cancelled because of the storm.",
        "Due to bad weather, the plane did not take off.",
        "She bought a new pair of running shoes.",
    ),
    (
        "He is learning to play the guitar.",
        "He takes guitar lessons.",
        "The parliament passed the budget on Friday.",
    ),
]


class BertTest(FunctionTest):
    def test_paraphrases_score_high_and_unrelated_sentences_about_0(self):
        for triple in TRIPLES:
            scores = self.run_with(sentences=triple).json["scores"]
            self.assertGreater(scores[0][1], 0.65, triple)
            self.assertLess(abs(scores[0][2]), 0.15, triple)
            self.assertLess(abs(scores[1][2]), 0.15, triple)

    def test_the_summary_has_a_word_for_each_pair(self):
        summary = self.run_with(sentences=TRIPLES[0]).json["summary"]
        self.assertEqual(summary, "0 and 1: close, 0 and 2: unrelated, 1 and 2: unrelated.")
        self.assertEqual(self.run_with(sentences=["Alone."]).json["summary"], ".")

    def test_the_scores_are_those_of_the_embeddings(self):
        answer = self.run_with(sentences=TRIPLES[0]).json
        vectors = numpy.array(answer["embeddings"])
        self.assertEqual(vectors.shape, (3, 384))
        numpy.testing.assert_allclose(vectors @ vectors.T, answer["scores"], atol=1e-3)
        numpy.testing.assert_allclose(numpy.diag(answer["scores"]), 1, atol=1e-3)

    def test_a_sentence_is_embedded_the_same_whatever_stands_beside_it(self):
        alone = self.run_with(sentences=TRIPLES[0][:1]).json["embeddings"][0]
        together = self.run_with(sentences=[TRIPLES[0][0], "word " * 100]).json["embeddings"][0]
        # Not equal: the steps of the 8-bit numbers depend on all that is in the batch.
        self.assertGreater(numpy.dot(alone, together), 0.98)

    def test_long_sentences_are_cut(self):
        answer = self.run_with(sentences=["word " * 400, "word " * 300])
        self.assertAlmostEqual(answer.json["scores"][0][1], 1, places=3)

    def test_wrong_arguments_are_an_error_and_the_next_run_works(self):
        for value in (
            {},
            {"sentences": "one"},
            {"sentences": []},
            {"sentences": [1]},
            {"sentences": [""]},
            {"sentences": ["x" * 2001]},
            {"sentences": ["x"] * 33},
        ):
            answer = self.run_with(**value)
            self.assertEqual(answer.status_code, 502, value)
            self.assertIn("ValueError", answer.json["error"])
        self.assertEqual(self.run_with(sentences=["x"] * 32).status_code, 200)

"""Counts of words, against collections.Counter."""

import collections
import hashlib

from function import FunctionTest
from java_random import Random

SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va".split()


class MapreduceTest(FunctionTest):
    name = "mapreduce"

    def draw(self, count, seed):
        random = Random(seed)
        for _ in range(count):
            words = [random.below(64) * random.below(64) for _ in range(300)]
            yield " ".join(SYLLABLES[word >> 8] + SYLLABLES[word >> 4 & 15] + SYLLABLES[word & 15] for word in words)

    def check(self, answer, texts):
        counts = collections.Counter(word for text in texts for word in text.lower().split())
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        self.assertEqual(answer, {
            "summary": f"{len(texts)} texts have {sum(counts.values())} words, {len(counts)} different ones",
            "top": [{"word": word, "count": count} for word, count in ordered[:10]],
            "sha256": hashlib.sha256("".join(
                f"{word} {count}\n" for word, count in sorted(counts.items())).encode()).hexdigest(),
        })

    def test_texts_of_the_request(self):
        for texts in ([], ["one"], ["  the cat\tand the\n dog ", "The DOG", " "], ["a b " * 20_000] * 3):
            self.check(self.run_with(texts=texts), texts)

    def test_texts_from_a_seed(self):
        for count, seed in ((1, 7), (50, 1), (50, 2)):
            self.check(self.run_with(documents=count, seed=seed), list(self.draw(count, seed)))

    def test_wrong_arguments(self):
        self.assert_refused("texts has to be a list", texts="one")
        self.assert_refused("each of texts", texts=[""])
        self.assert_refused("documents has to be", documents=2001)
        self.run_with(documents=1)

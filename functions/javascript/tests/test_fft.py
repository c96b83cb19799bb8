"""The spectrum of tones against the definition of the transform, which is far too slow for long signals."""

import cmath
import math

import function


def spectrum(samples):
    length = len(samples)
    return [sum(sample * cmath.exp(-2j * math.pi * bin * index / length) for index, sample in enumerate(samples))
            for bin in range(length)]


class Fft(function.FunctionTest):
    name = "fft"
    wrong = [
        ({"length": 12}, "length"),
        ({"length": 1 << 20}, "length"),
        ({"length": 64, "tones": [{"frequency": 32}]}, "frequency"),
        ({"tones": [3]}, "tones"),
        ({"tones": [{"frequency": 1, "amplitude": "loud"}]}, "amplitude"),
        ({"length": 64, "bins": [64]}, "bins"),
    ]

    def test_the_spectrum_of_a_short_signal_is_the_one_of_the_definition(self):
        length, tones = 128, [(3, 2.0), (17, 0.25), (40, 1.5)]
        samples = [sum(height * math.cos(2 * math.pi * frequency * index / length) for frequency, height in tones)
                   for index in range(length)]
        answer = self.answer(length=length, bins=list(range(length)),
                             tones=[{"frequency": frequency, "amplitude": height} for frequency, height in tones])
        for bin, (expected, got) in enumerate(zip(spectrum(samples), answer["bins"], strict=True)):
            self.assertAlmostEqual(expected, complex(*got), delta=1e-9, msg=bin)

    def test_a_long_signal_keeps_its_energy_its_tones_and_comes_back(self):
        for length, tones in ((16384, {700: 1.0, 701: 0.125}), (32768, {1: 3.0, 16383: 2.0})):
            answer = self.answer(length=length, tones=[{"frequency": frequency, "amplitude": height}
                                                       for frequency, height in tones.items()])
            expected = sum(height * height for height in tones.values()) * length / 2
            self.assertAlmostEqual(answer["signal_energy"] / expected, 1, delta=1e-9)
            self.assertAlmostEqual(answer["spectrum_energy"] / expected, 1, delta=1e-9)
            self.assertLess(answer["inverse_distance"], 1e-9)
            self.assertEqual([peak["frequency"] for peak in answer["peaks"]], list(tones))
            for peak in answer["peaks"]:
                self.assertAlmostEqual(peak["amplitude"], tones[peak["frequency"]], delta=1e-9)

"""Each step on the pixels of a picture, done again in Python."""

import base64

import png
from function import FunctionTest
from java_random import Random


def mirror(rows):
    return [row[::-1] for row in rows]


def invert(rows):
    return [[tuple(255 - value for value in pixel) for pixel in row] for row in rows]


def grey(rows):
    return [[((299 * red + 587 * green + 114 * blue + 500) // 1000,) * 3 for red, green, blue in row] for row in rows]


def transpose(rows):
    return [list(row) for row in zip(*rows)]


def blur_across(rows):
    def at(row, place):
        return row[min(max(place, 0), len(row) - 1)]

    return [[tuple(sum(at(row, place + step)[channel] for step in (-1, 0, 1)) // 3 for channel in range(3))
             for place in range(len(row))] for row in rows]


def blur(rows):
    return transpose(blur_across(transpose(blur_across(rows))))


class ImagePipelineTest(FunctionTest):
    name = "image-pipeline"
    STEPS = {"mirror": mirror, "invert": invert, "grey": grey, "blur": blur}

    def take(self, rows, steps, **more):
        image = base64.b64encode(png.encode(rows)).decode()
        answer = self.run_with(image=image, steps=steps, format="png", **more)
        self.assertEqual(answer["summary"].split(":")[0], ", ".join(steps))
        return png.decode(base64.b64decode(answer["image"]))

    def test_steps(self):
        random = Random(1)
        for width, height in ((31, 20), (1, 5), (5, 1), (1, 1)):
            rows = [[tuple(random.below(256) for _ in range(3)) for _ in range(width)] for _ in range(height)]
            for steps in (["mirror"], ["invert"], ["grey"], ["blur"], [], ["mirror", "blur", "grey", "invert", "blur"]):
                expected = rows
                for step in steps:
                    expected = self.STEPS[step](expected)
                self.assertEqual(self.take(rows, steps), expected, steps)

    def test_shrink_is_a_step(self):
        pixels = self.take([[(9, 90, 200)] * 90] * 60, ["shrink", "invert"], side=30)
        self.assertEqual(pixels, [[(246, 165, 55)] * 30] * 20)

    def test_wrong_arguments(self):
        self.assert_refused("each of steps", steps=["rotate"])
        self.assert_refused("steps has to be a list", steps="grey")
        self.assert_refused("steps has to be a list", steps=["grey"] * 21)
        self.run_with(steps=["grey"])

"""Sizes and colours of pictures that were made smaller, by a decoder of our own."""

import base64
import struct

import png
from function import FunctionTest


def text(picture):
    return base64.b64encode(picture).decode()


def jpeg_size(picture):
    """Return width and height, from the first frame of a JPEG."""
    place = 2
    while True:
        marker, length = struct.unpack(">HH", picture[place:place + 4])
        if marker == 0xFFC0:
            height, width = struct.unpack(">HH", picture[place + 5:place + 9])
            return width, height
        place += 2 + length


class ImageResizeTest(FunctionTest):
    name = "image-resize"
    RED, BLUE = (250, 10, 20), (30, 40, 200)

    def resize(self, rows, side):
        answer = self.run_with(image=text(png.encode(rows)), side=side, format="png")
        return answer, png.decode(base64.b64decode(answer["image"]))

    def test_sizes_and_colours(self):
        for width, height, side, expected in (
            (100, 60, 50, (50, 30)), (64, 200, 40, (13, 40)), (300, 300, 7, (7, 7)), (20, 10, 50, (20, 10)),
            (500, 1, 10, (10, 1)),
        ):
            rows = [[self.RED] * (width // 2) + [self.BLUE] * (width - width // 2) for _ in range(height)]
            answer, pixels = self.resize(rows, side)
            self.assertEqual((len(pixels[0]), len(pixels)), expected)
            self.assertEqual((answer["width"], answer["height"]), expected)
            # What is away from the border between the halves keeps its colour.
            for row in pixels:
                self.assertEqual((row[0], row[-1]), (self.RED, self.BLUE))

    def test_a_picture_that_is_small_enough_stays(self):
        rows = [[(x, y, x ^ y) for x in range(30)] for y in range(20)]
        self.assertEqual(self.resize(rows, 30)[1], rows)

    def test_the_photograph(self):
        answer = self.run_with(side=200)
        self.assertEqual(jpeg_size(base64.b64decode(answer["image"])), (200, 150))
        # And what it made can be read again.
        again = self.run_with(image=answer["image"], side=100, format="png")
        pixels = png.decode(base64.b64decode(again["image"]))
        self.assertEqual((len(pixels[0]), len(pixels)), (100, 75))
        self.assertGreater(len({pixel for row in pixels for pixel in row}), 1000)

    def test_wrong_arguments(self):
        picture = png.encode([[self.RED] * 100] * 100)
        for side in (0, 801, "1"):
            self.assert_refused("side has to be", side=side)
        self.assert_refused("format has to be jpeg or png", format="bmp")
        self.assert_refused("base64", image="&&&&")
        self.assert_refused("image has to be a JPEG", image=text(b"no picture"))
        self.assert_refused("image is damaged", image=text(picture[:60]))
        # A few bytes that say they are a picture of many.
        huge = png.SIGNATURE + png.header(60_000, 60_000) + png.chunk(b"IEND", b"")
        self.assert_refused("pixels", image=text(huge))
        self.run_with(image=text(picture))

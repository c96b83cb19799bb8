"""java.util.Random, which its documentation defines to the bit."""

MULTIPLIER = 0x5DEECE66D
MASK = (1 << 48) - 1


class Random:
    """The sequence of a seed."""

    def __init__(self, seed):
        self.state = (seed ^ MULTIPLIER) & MASK

    def below(self, bound):
        """As nextInt(bound)."""
        while True:
            self.state = (self.state * MULTIPLIER + 11) & MASK
            bits = self.state >> 17
            if bound & (bound - 1) == 0:
                return bound * bits >> 31
            value = bits % bound
            if bits - value + bound - 1 < 1 << 31:
                return value

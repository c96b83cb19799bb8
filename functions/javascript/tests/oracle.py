"""The numbers of common/random.js, once more."""


def draws(seed):
    """A function that gives whole numbers from 0 to its argument - 1: the generator of Park and Miller."""
    state = seed

    def draw(bound):
        nonlocal state
        state = state * 48271 % 0x7FFFFFFF
        return state % bound

    return draw

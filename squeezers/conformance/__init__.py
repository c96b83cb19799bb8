"""One suite that holds every squeezer to the protocol in squeezers/README.md.

It runs with the ADAPTER of a module `adapter`, which is the one of the squeezer in whose tests/ it is started.
interface.py says what an adapter has to have. The other modules without tests are for all tests of squeezers.
"""

import pathlib


def load_tests(loader, _tests, _pattern):
    """All of it, for `unittest conformance`."""
    modules = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    return loader.loadTestsFromNames([f"{__name__}.{module}" for module in modules])

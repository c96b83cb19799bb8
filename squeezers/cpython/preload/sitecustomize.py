"""Starts the squeezer in a Python whose PYTHONPATH names this folder, and leaves no other trace."""
import os
import sys

if sys.version_info >= (3, 8):  # an older one does not understand the squeezer's source
    import squeezer
    squeezer.start()

# The program has not asked for this folder, and there may be another sitecustomize behind it.
# Where there is none the import fails, which the caller takes for "none".
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _here]
del sys.modules["sitecustomize"]
__import__("sitecustomize")

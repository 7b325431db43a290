"""What the fork server of the units loads before the first of them, so that they all have it from their birth.

An embedder takes a second of processor time to load, and the profiles of the language detection half of one: for each
of a thousand units that is more than a quarter of all that they do. Loaded once, they are also in memory once.
Importing this module in a process where $KIOKULAB_WARM names embedders is all there is to do (a fork server can only be
told to import); anywhere else it does nothing. Nothing here decides a figure: a unit that finds nothing loaded loads it
itself.
"""

import os
import sys

from kiokulab.units import WARM

if os.environ.get(WARM):
    from kiokulab import embed, text

    try:
        text.load_detector()
        for name in os.environ.pop(WARM).split(","):
            embed.load_shared(name)
    except Exception as error:  # the units meet it again, each with a log of its own to tell it in
        print(
            f"kiokulab: nothing is loaded for all units: {type(error).__name__}: {error}", file=sys.stderr, flush=True
        )

"""Kioku Lab: one research kit for four benchmarks of AI agents' memory.

This file imports nothing, so that `kiokulab.worker` and the adapters can be loaded inside a memory
system's own environment, where none of the kit's packages are installed.
"""

__version__ = "0.1.0"

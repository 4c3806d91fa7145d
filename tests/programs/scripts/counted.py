"""Another script, with PyTorch's own counters printed at its end: counted.py SCRIPT ARGUMENTS..."""

import os
import runpy
import sys

import counters  # noqa: F401

sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")

"""Runs one of Liger-Kernel's benchmark scripts, unmodified, with more room for compiled code. Before PyTorch 2.5 torch.compile kept code for
each module; since then modules of one class share a limit of eight, and a script that compiles more sizes would leave the rest uncompiled.

python run_script.py SCRIPT ARGUMENT..., the script's folder on PYTHONPATH
"""

import runpy
import sys

MOST_SIZES = 64


def main():
    import torch._dynamo.config

    torch._dynamo.config.cache_size_limit = MOST_SIZES
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

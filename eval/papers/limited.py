"""The second round of the papers: a script with PyTorch's allocator limited to a part of the card.

    gpucast run --enforce-capacity -- python eval/papers/limited.py 0.35 train.py --batch 32

The limit is set like in the xMem artifact, before the script's first line.
"""

import os
import runpy
import sys

import torch

fraction, script = float(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(script))
torch.cuda.set_per_process_memory_fraction(fraction)
runpy.run_path(script, run_name="__main__")

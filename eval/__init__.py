"""gpucast compared with measurements. README.md says which folder answers what; commands run from the repository's root:

python -m eval.operations.judge --help
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

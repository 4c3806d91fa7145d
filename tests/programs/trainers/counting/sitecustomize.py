"""On PYTHONPATH, every Python prints PyTorch's own peaks when it ends, without a line in the program. Peaks before a
`torch.cuda.reset_peak_memory_stats()` of the program's count as well.
"""

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
from multiprocessing import util

MODULE = "torch.cuda.memory"
_before_resets = {}  # device -> (allocated, reserved), in bytes
_process = None  # that has printed


def _peaks(device):
    memory = sys.modules[MODULE]
    now = memory.max_memory_allocated(device), memory.max_memory_reserved(device)
    return tuple(max(pair) for pair in zip(now, _before_resets.get(device, (0, 0)), strict=True))


def _rank():
    """As torch.distributed knows it, which may have it from the program and not from a launcher."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return os.environ.get("RANK", 0)


def _say():
    global _process
    torch = sys.modules.get("torch")
    if _process == os.getpid() or MODULE not in sys.modules or not torch.cuda.is_initialized():
        return
    _process = os.getpid()
    for device in range(torch.cuda.device_count()):
        allocated, reserved = _peaks(device)
        if reserved:
            os.write(2, f"\n@{_rank()}.{device}={allocated},{reserved}\n".encode())


def _keep_peaks_before_resets(memory):
    reset = memory.reset_peak_memory_stats

    def reset_peak_memory_stats(device=None):
        for each in range(sys.modules["torch"].cuda.device_count()):
            _before_resets[each] = _peaks(each)
        reset(device)

    memory.reset_peak_memory_stats = reset_peak_memory_stats


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _keep_peaks_before_resets(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
atexit.register(_say)
util.Finalize(None, _say, exitpriority=-1000)  # children of multiprocessing end without atexit

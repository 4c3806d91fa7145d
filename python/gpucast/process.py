"""The state of this process's capture or profile; all other modules read it. `capture` and `profile_capture` set it.

watching   torch is being imported or is there; the job has not begun
armed      the job has begun and is recorded
clocked    a run with a clock uses CUDA: nothing is recorded
unobserved the capture is written; the script takes a few more steps, which show its host's time
ended      the capture or trace is written; nothing is recorded any more, and the script stands still
off        nothing is recorded here: DataLoader workers, forked children of an armed process
"""

import os
import sys

from . import session
from .recorder import Recorder

WATCHING, ARMED, CLOCKED, UNOBSERVED, ENDED, OFF = "watching", "armed", "clocked", "unobserved", "ended", "off"

state = None  # until torch is imported
torch = None
# torch.compiler.is_compiling; before 2.3 it had another name. Dynamo knows this call and traces `True`: our hooks vanish from compiled code.
is_compiling = None
build = None  # libraries.TorchBuild
recorder = Recorder()
issuing_cpu_ns = None  # a function of the core: CPU time of the threads that submit work
when_armed = None  # called once, at the first CUDA call; the fork server sets it


def job_runs():
    """The job has begun and goes on, recorded or on a clock."""
    return state in (ARMED, CLOCKED, UNOBSERVED)


def job_is_captured():
    """The job has begun and goes on; it is recorded, or was."""
    return state in (ARMED, UNOBSERVED)


def is_data_worker():
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


_group = {}  # rank and world_size, last values from torch.distributed


def ranks():
    """The ranks from launchers such as torchrun, or from torch.distributed once it is set up. Without both, a job of one process."""
    defaults = {"rank": 0, "local_rank": 0, "world_size": 1, "local_world_size": 1}
    found = {name: _env_int(name.upper(), default) for name, default in defaults.items()}
    here = session.settings().get("ranks") if session.FOLDER else None
    if here:  # the others are simulated
        found["local_world_size"] = len(here)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and getattr(distributed, "is_initialized", bool)():
        _group.update(rank=distributed.get_rank(), world_size=distributed.get_world_size())
    found.update(_group)
    return found


def _env_int(name, default):
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default

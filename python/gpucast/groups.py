"""The ranks of the job that each of NCCL's communicators connects.

NCCL knows a communicator's own numbers alone. PyTorch knows the ranks of a process group, and stands in the way from one to the other: a
communicator's id is in the group's store, and a communicator split from another has a colour made of its ranks.
"""

import datetime
import os

from . import process

_NCCL_ID_BYTES = 128
_STORE_LIMIT = datetime.timedelta(seconds=5)

_known = {}  # by the communicator's name


def look(core):
    """Finds the ranks of communicators that are new. While the job runs: later its store may be gone."""
    made = _made(core)
    distributed = getattr(process.torch, "distributed", None)
    if not made.keys() - _known.keys() or not distributed or not distributed.is_available() or not distributed.is_initialized():
        return
    world = distributed.distributed_c10d._world
    for group, (_, store) in list(world.pg_map.items()):
        ranks = [rank for rank, _ in sorted(world.pg_group_ranks[group].items(), key=lambda pair: pair[1])]
        color = _color(distributed.distributed_c10d, ranks)
        for name, of_name in made.items():
            if name not in _known and of_name >= 0 and of_name == color:
                _known[name] = ranks
        if any(name not in _known for name in made):
            _look_in_store(store, ranks, made)


def record():
    """The ranks of each communicator, how many ranks a node has, and NCCL's settings. None: there is no communicator."""
    if not _known:
        return None
    groups = [{"name": name, "ranks": ranks} for name, ranks in _known.items()]
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    return {"record": "communicators", "node_ranks": int(os.environ.get("LOCAL_WORLD_SIZE", "0") or 0), "nccl": settings, "groups": groups}


def _made(core):
    """The colour of each by its name (below 0: none)."""
    lines = [line.split() for line in core.gpucast_vgpu_communicators().decode().splitlines()]
    return {name: int(color) for name, color in lines}


def _color(distributed_c10d, ranks):
    try:
        return distributed_c10d._process_group_color(ranks)
    except AttributeError:  # before 2.2
        return None


def _look_in_store(store, ranks, made):
    """PyTorch's keys: a number for each communicator of the whole group, a pair of ranks for messages of two."""
    limit = store.timeout
    store.set_timeout(_STORE_LIMIT)
    try:
        mine = ranks.index(process.ranks()["rank"])
        keys = {str(number): ranks for number in range(4)}
        for other in range(len(ranks)):
            pair = min(mine, other), max(mine, other)
            keys[f"{pair[0]}:{pair[1]}"] = [ranks[place] for place in pair] if other != mine else ranks
        for prefix in ("cuda//", ""):
            for key, of_key in keys.items():
                if store.check([prefix + key]):
                    name = _name(store.get(prefix + key))
                    if name in made:
                        _known.setdefault(name, of_key)
    finally:
        store.set_timeout(limit)


def _name(unique_id):
    """As src/vgpu/libs/nccl.cc names a communicator: FNV-1a of its id."""
    if len(unique_id) != _NCCL_ID_BYTES:
        return ""
    value = 14695981039346656037
    for byte in unique_id:
        value = (value ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"

"""The ranks of the job that each of NCCL's communicators connects, and how the program describes their groups.

NCCL knows a communicator's own numbers alone. PyTorch knows the ranks of a process group, and stands in the way from one to the other: a
communicator's id is in the group's store, and a communicator split from another has a colour made of its ranks.
"""

import ctypes
import datetime
import os

from . import process

_NCCL_ID_BYTES = 128
_NO_COLOR = -1  # not split from another
_STORE_LIMIT = datetime.timedelta(seconds=5)

_known = {}  # by the communicator's name: a list of ranks
_described = {}  # by the communicator's name: descriptions of groups; several, if groups of equal ranks share a colour


def look(core):
    """Finds the ranks of communicators that are new. While the job runs: later its store may be gone."""
    made = _made(core)
    distributed = getattr(process.torch, "distributed", None)
    if not made.keys() - _known.keys() or not distributed or not distributed.is_available() or not distributed.is_initialized():
        return
    world = distributed.distributed_c10d._world
    for group, (_, store) in list(world.pg_map.items()):
        ranks = [rank for rank, _ in sorted(world.pg_group_ranks[group].items(), key=lambda pair: pair[1])]
        described = getattr(group, "group_desc", "")  # before 2.4 there is none
        color = _color(distributed.distributed_c10d, ranks)
        for name, of_name in made.items():
            if of_name != _NO_COLOR and of_name == color:
                _add(name, ranks, described)
        if any(name not in _known for name in made):
            _look_in_store(store, ranks, described, made)


def record():
    """The ranks of each communicator, how many ranks a node has, and NCCL's settings. None: there is no communicator."""
    if not _known:
        return None
    groups = [{"name": name, "ranks": ranks, "descriptions": sorted(_described[name])} for name, ranks in _known.items()]
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    return {"record": "communicators", "node_ranks": int(os.environ.get("LOCAL_WORLD_SIZE", "0") or 0), "nccl": settings, "groups": groups}


def _add(name, ranks, described):
    _known.setdefault(name, ranks)
    descriptions = _described.setdefault(name, set())
    if described:
        descriptions.add(described)


def _made(core):
    """The colour of each by its name."""
    lines = [line.split() for line in core.gpucast_vgpu_communicators().decode().splitlines()]
    return {name: int(color) for name, color in lines}


def _color(distributed_c10d, ranks):
    try:
        return ctypes.c_int(distributed_c10d._process_group_color(ranks)).value  # NCCL's type
    except AttributeError:  # before 2.2
        return None


def _look_in_store(store, ranks, described, made):
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
                    if name in made and name not in _known:
                        _add(name, of_key, described)
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

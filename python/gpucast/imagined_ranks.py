"""`--world-size N --ranks 0,8`, and `torchrun --nnodes 16`: some ranks of a job run here, the others are simulated.

A simulated rank holds the same contents as the first rank here (src/vgpu/libs/nccl.cc). This module handles the store by which
ranks find each other: it answers for the simulated ranks. It also handles torchrun, which would wait for the other nodes.
"""

import hashlib
import os
import socket
import sys
import time

from . import patching, process, session

_START_S = 60  # the other ranks here get this time to find the store
_ID_S = 300  # and this time to write an id that they alone can write, after what they compute or compile before
_GRACE_S = 1  # and this time to write a value that another rank reads
_NCCL_ID_BYTES = 128
_ARRIVED = "gpucast/arrived"

_stores = []  # kept alive: PyTorch keeps only the stores that they wrap
_groups = {}  # the ranks of each group, by its name


def _here():
    """The ranks that run on this machine; empty if all do."""
    return [int(rank) for rank in os.environ.get("GPUCAST_RANKS_HERE", "").split(",") if rank]


def install(torch):
    if _here() and torch.distributed.is_available():
        # PyTorch's threads that watch NCCL would call the store until the very end, when Python has already ended.
        os.environ["TORCH_NCCL_ENABLE_MONITORING"] = os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
        # As an attribute, this name is a function.
        sys.modules["torch.distributed.rendezvous"]._create_c10d_store = _create_store
        patching.wrap(torch.distributed, "broadcast_object_list", _from_imagined)
        patching.wrap(torch.distributed, "init_process_group", _without_gloo)
        patching.wrap(torch.distributed.distributed_c10d, "_new_process_group_helper", _noting_ranks)
        torch.distributed.distributed_c10d.ProcessGroupGloo = _Gloo


def _from_imagined(real):
    """Replaces an object from a rank that does not run here by this rank's own."""

    def broadcast_object_list(object_list, src=None, *args, **kwargs):
        if src is None or src in _here():
            return real(object_list, src, *args, **kwargs)
        process.recorder.warn(
            "rank_imagined",
            f"rank {src} does not run here: its object is assumed to equal this rank's own. Let that rank run too (--ranks)",
        )
        return None

    return broadcast_object_list


def _without_gloo(real):
    """A job's own group carries its work, so it has to be NCCL's."""

    def init_process_group(backend=None, *args, **kwargs):
        if backend is not None and str(backend).lower() == "gloo":
            raise RuntimeError(
                "gloo connects every rank with every other, and here most are simulated (--world-size, torchrun --nnodes): "
                'use NCCL alone, init_process_group("nccl"), or run all ranks here with torchrun'
            )
        return real(backend, *args, **kwargs)

    return init_process_group


class _IsFake(type):
    def __instancecheck__(cls, group):
        return isinstance(group, process.torch._C._distributed_c10d.FakeProcessGroup)


class _Gloo(metaclass=_IsFake):
    """A script's further groups of gloo move a few objects between hosts. Here they have no connection: each rank receives its own data."""

    def __new__(cls, store, rank, size, *_, **__):
        fake = process.torch._C._distributed_c10d.FakeProcessGroup
        if hasattr(fake, "_create_internal"):
            return fake._create_internal(rank, size)
        # Older releases number the collectives of gloo's groups, which their fake groups cannot.
        return type("Fake", (fake,), {"_set_sequence_number_for_group": lambda self: None})(rank, size)


def _noting_ranks(real):
    def _new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *args, **kwargs):
        _groups[str(group_name)] = list(global_ranks_in_group)
        return real(group_size, group_rank, global_ranks_in_group, backend, store, group_name, *args, **kwargs)

    return _new_process_group_helper


def _writer(key):
    """The rank that writes NCCL's id of a communicator, by the names that ProcessGroupNCCL has for them; None: another kind of key.

    `default_pg/0//GROUP//cuda//0` is a group's own, which its first rank writes; `...//2:5` one for messages, which the lower rank writes.
    """
    *_, group, device, name = ["", "", *key.split("//")]
    first, _, second = name.partition(":")
    if device != "cuda" or not first.isdigit() or (second and not second.isdigit()):
        return None
    ranks = _groups.get(group.removeprefix("default_pg/"))
    place = int(first) if second else 0
    return place if not ranks else ranks[place] if place < len(ranks) else None


def _create_store(hostname, port, rank, world_size, timeout, *_, **__):
    distributed = process.torch.distributed
    here = _here()
    inner = distributed.HashStore() if len(here) == 1 else distributed.FileStore(f"{session.FOLDER}/store.{port}", len(here))
    _stores.append(_store_class(distributed)(inner, len(here)))
    return _stores[-1]


def _store_class(distributed):
    class Store(distributed.Store):
        def __init__(self, inner, ranks):
            super().__init__()
            self._inner, self._ranks = inner, ranks
            inner.add(_ARRIVED, 1)

        def _come(self, keys):
            """Whether these keys are there, after the ranks here had time to write them."""
            start = time.monotonic()
            arrived = start if self._ranks == 1 else None
            while not self._inner.check(keys):
                now = time.monotonic()
                if arrived is None and self._inner.add(_ARRIVED, 0) >= self._ranks:
                    arrived = now
                if self._ranks == 1 or now - start > _START_S or (arrived is not None and now - arrived > _GRACE_S):
                    return False
                time.sleep(0.01)
            return True

        def _is_written(self, key):
            writer = _writer(key)
            if writer is None:
                return self._come([key])
            end = time.monotonic() + (_ID_S if writer in _here() else 0)
            while not self._inner.check([key]):
                if time.monotonic() >= end:
                    return False
                time.sleep(0.01)
            return True

        def get(self, key):
            if self._is_written(key):
                return self._inner.get(key)
            # An id by which ranks find each other: all ranks here make the same.
            made = (hashlib.sha256(key.encode()).digest() * _NCCL_ID_BYTES)[:_NCCL_ID_BYTES]
            self._inner.set(key, made)
            return made

        def wait(self, keys, timeout=None):
            """Ranks that do not run here count as arrived."""
            self._come(keys)

        def set(self, key, value):
            self._inner.set(key, value)

        def add(self, key, amount):
            return self._inner.add(key, amount)

        def check(self, keys):
            return self._inner.check(keys)

        def compare_set(self, key, expected, desired):
            return self._inner.compare_set(key, expected, desired)

        def delete_key(self, key):
            return self._inner.delete_key(key)

        def num_keys(self):
            return self._inner.num_keys()

        def set_timeout(self, timeout):
            pass

        def has_extended_api(self):
            return False

    return Store


# ---- torchrun over several nodes -------------------------------------------------------------------------------------------------

_nodes = _node = None  # the number of nodes; this node's number


def patch_launcher(name, module):
    """A module of torchrun's, right after it was imported."""
    if name.endswith(".launcher.api"):
        patching.wrap(module, "launch_agent", _launching)
    else:
        patching.wrap(module.SimpleElasticAgent, "_rendezvous", _meeting)
        patching.wrap(module.SimpleElasticAgent, "_exit_barrier", _leaving)


def _launching(real):
    """Runs as if this node were alone."""

    def launch_agent(config, *args, **kwargs):
        global _nodes, _node
        if config.min_nodes > 1:
            _nodes, _node = config.min_nodes, int(config.rdzv_configs.get("rank", 0))
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                config.rdzv_backend, config.rdzv_endpoint = "static", f"127.0.0.1:{free.getsockname()[1]}"
            config.min_nodes = config.max_nodes = 1
            config.rdzv_configs = {**config.rdzv_configs, "rank": 0}
        return real(config, *args, **kwargs)

    return launch_agent


def _meeting(real):
    """Ranks are numbered as if the other nodes were present, each with the same number of ranks."""

    def _rendezvous(self, group):
        real(self, group)
        if not _nodes:
            return
        group.group_rank, group.group_world_size = _node, _nodes
        first = _node * len(group.workers)
        for worker in group.workers:
            worker.global_rank += first
            worker.role_rank += first
            worker.world_size *= _nodes
            worker.role_world_size *= _nodes
        os.environ["GPUCAST_RANKS_HERE"] = ",".join(str(worker.global_rank) for worker in group.workers)

    return _rendezvous


def _leaving(real):
    return lambda self: None if _nodes else real(self)

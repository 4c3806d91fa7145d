"""The what-if `fsdp`: a model of DistributedDataParallel sharded by PyTorch's FSDP2 instead."""

import collections
import inspect
import weakref

from .what_if_base import WhatIf, class_name, listed, wrap

_REFUSED = {
    "mixed_precision": "DistributedDataParallel has mixed_precision, which fully_shard has in another form",
    "delay_all_reduce_named_params": "DistributedDataParallel delays the reduction of some parameters",
}


class Fsdp(WhatIf):
    """fully_shard(block) for each repeated block, then fully_shard(model), where the script makes DistributedDataParallel(model).

    The script keeps an object of that class, with `module`, `no_sync()` and `state_dict()`; its forward is the sharded model's."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._degree = int(argument) if argument else 0
        self._sharded = weakref.WeakSet()  # objects of DistributedDataParallel that are none any more
        self._optimizers = weakref.WeakSet()
        self._why_not = "the script makes no DistributedDataParallel"

    def at_import(self):
        kind = self.torch.nn.parallel.DistributedDataParallel
        wrap(kind, "__init__", self._constructing)
        wrap(kind, "forward", self._forward)
        for name in ("register_comm_hook", "_set_static_graph"):
            wrap(kind, name, self._without_reducer)
        wrap(self.torch.optim.Optimizer, "__init__", self._making_optimizer)

    def _making_optimizer(self, real):
        def initialize(optimizer, *args, **kwargs):
            real(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)

        return initialize

    def _constructing(self, real):
        signature = inspect.signature(real)

        def construct(*args, **kwargs):
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return real(*args, **kwargs)  # raises the right error
            plan = self.safely(self._plan, given)
            if not plan:
                return real(*args, **kwargs)
            return self._shard(given["self"], given["module"], given, *plan)

        return construct

    def _plan(self, given):
        """(ranks of a shard, all ranks, what fully_shard gets); False: the model stays as it is, and why not."""
        import torch.distributed as dist

        model = given["module"]
        group = given.get("process_group")
        if given.get("device_mesh") is not None:
            group = given["device_mesh"].get_group()
        ranks = dist.get_world_size(group)
        degree = self._degree or ranks
        self._why_not = self._problem(model, given, ranks, degree)
        if self._why_not:
            return False
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

        mesh = None  # all ranks
        if degree < ranks:
            if ranks != dist.get_world_size():
                self._why_not = "DistributedDataParallel has a group of its own, and groups of shards are made of all ranks"
                return False
            mesh = init_device_mesh("cuda", (ranks // degree, degree), mesh_dim_names=("replicate", "shard"))
        elif ranks != dist.get_world_size():
            mesh = DeviceMesh.from_group(group, "cuda")
        return degree, ranks, {} if mesh is None else {"mesh": mesh}

    def _problem(self, model, given, ranks, degree):
        for name, why in _REFUSED.items():
            if given.get(name) is not None:
                return why
        if ranks == 1:
            return "the job has one rank"
        if ranks % degree != 0:
            return f"the job has {ranks} ranks, which {degree} does not divide"
        parameters = list(model.parameters())
        if any(parameter.device.type != "cuda" for parameter in parameters):
            return "a parameter of the model is not on the card"
        if any(type(parameter.data) is not self.torch.Tensor for parameter in parameters):
            return "a parameter of the model is sharded already"
        ours = {id(parameter) for parameter in parameters}
        if any(id(parameter) in ours for optimizer in self._optimizers for parameter in optimizer.state):
            return "an optimizer has state of the model's parameters before DistributedDataParallel is made"
        try:
            from torch.distributed.fsdp import fully_shard  # noqa: F401
        except ImportError:
            return "torch.distributed.fsdp.fully_shard came with PyTorch 2.6"
        return ""

    def _shard(self, ddp, model, given, degree, ranks, options):
        from torch.distributed.fsdp import fully_shard

        blocks = repeated_blocks(self.torch, model)
        for module in (*blocks, model):
            self._keep_optimizers(module, lambda module=module: fully_shard(module, **options))
        self.torch.nn.Module.__init__(ddp)
        ddp.module = model
        ddp.device = next(model.parameters()).device
        for name in ("device_ids", "output_device", "process_group"):
            setattr(ddp, name, given.get(name))
        for name in ("find_unused_parameters", "gradient_as_bucket_view", "static_graph"):
            setattr(ddp, name, given.get(name, False))
        ddp.require_backward_grad_sync = ddp.require_forward_param_sync = True  # no_sync() changes the first
        ddp.__dict__["_syncs"] = True
        self._sharded.add(ddp)
        kinds = collections.Counter(class_name(block) for block in blocks)
        parts = [f"{count} {kind}" for kind, count in kinds.items()] + [class_name(model)]
        self.acted(f"{', '.join(parts)} sharded over {degree} of {ranks} ranks")

    def _keep_optimizers(self, module, shard):
        """fully_shard makes new parameters: an optimizer that was made before gets these."""
        former = dict(module.named_parameters(remove_duplicate=False))
        shard()
        new = {id(former[name]): parameter for name, parameter in module.named_parameters(remove_duplicate=False) if name in former}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["params"] = [new.get(id(parameter), parameter) for parameter in group["params"]]

    def _forward(self, real):
        def forward(ddp, *inputs, **kwargs):
            if ddp not in self._sharded:
                return real(ddp, *inputs, **kwargs)
            if ddp._syncs != ddp.require_backward_grad_sync:
                ddp.__dict__["_syncs"] = ddp.require_backward_grad_sync
                ddp.module.set_requires_gradient_sync(ddp.require_backward_grad_sync)
            return ddp.module(*inputs, **kwargs)

        return forward

    def _without_reducer(self, real):
        def call(ddp, *args, **kwargs):
            return None if ddp in self._sharded else real(ddp, *args, **kwargs)

        return call

    def did(self):
        return f"{listed(self.subjects)} by fully_shard instead of DistributedDataParallel" if self.count else self._why_not


def repeated_blocks(torch, model):
    """The outermost modules that a list or a sequence has several of: with modules in them, or, if there are none, such as nn.Linear."""
    nn = torch.nn

    def visit(module, with_parts, found):
        children = list(module.children())
        kinds = collections.Counter()
        if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            kinds.update(type(child) for child in children if _is_block(child, with_parts))
        for child in children:
            if kinds[type(child)] > 1 and _is_block(child, with_parts):
                found.setdefault(id(child), child)
            else:
                visit(child, with_parts, found)
        return found

    return list((visit(model, True, {}) or visit(model, False, {})).values())


def _is_block(module, with_parts):
    if next(module.parameters(), None) is None:
        return False
    return not with_parts or next(module.children(), None) is not None

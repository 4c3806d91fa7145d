"""The computation graph of a model's first forward, for predictors that learn from graphs: `GPUCAST_GRAPH=FILE`. docs/reference/dnn-occu.md
has the format. Nothing is recorded if the variable is not set."""

import json
import math
import os
import sys

from . import patching, process

_FILE = os.environ.get("GPUCAST_GRAPH", "")

# Operators without work: views that are not declared as views, and queries.
_WITHOUT_WORK = frozenset(("_unsafe_view", "detach", "empty", "empty_like", "empty_strided", "as_strided_", "set_", "_local_scalar_dense"))

_recording = None  # the mode, while it is on
_done = False


@patching.guard("graph")
def before_forward():
    global _recording
    if not _FILE or _done or _recording is not None:
        return
    mode = _recorder()
    mode.__enter__()
    _recording = mode


@patching.guard("graph")
def after_forward():
    global _recording, _done
    if _recording is None:
        return
    mode, _recording, _done = _recording, None, True
    mode.__exit__(None, None, None)
    text = json.dumps({"schema_version": 1, "python": sys.executable, "torch": process.build.version, **mode.graph})
    with open(_FILE, "w", encoding="utf-8") as file:
        file.write(text)


def _recorder():
    torch = process.torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    def bytes_allocated():
        return torch._C._cuda_memoryStats(torch.cuda.current_device())["allocated_bytes"]["all"]["allocated"]

    def tensors_of(values):
        for value in values:
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from tensors_of(value)

    def numbers_of(values):
        for value in values:
            if isinstance(value, (list, tuple)):
                yield from numbers_of(value)
            elif isinstance(value, (bool, int, float)) and abs(value) < 2**53:  # not NaN, not infinite
                yield value

    def storage(tensor):
        return tensor.untyped_storage()._cdata

    class Recorder(TorchDispatchMode):
        """An operator that only makes views is not a node: its result has its input's address."""

        def __init__(self):
            super().__init__()
            self.graph = {"nodes": [], "edges": []}
            self._writers = {}  # storage -> the node that wrote to it last
            self._kept = []  # kept alive, so no storage's address is used twice

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            before = bytes_allocated()
            result = function(*args, **kwargs)
            taken = bytes_allocated() - before
            patching.safely(self._add, function, [*args, *kwargs.values()], kwargs, args, result, taken)
            return result

        def _add(self, function, values, kwargs, args, result, taken):
            inputs, outputs = list(tensors_of(values)), list(tensors_of([result]))
            name = function.overloadpacket._qualified_op_name
            if function.is_view or name.rpartition("::")[2] in _WITHOUT_WORK:
                return
            if not any(tensor.is_cuda for tensor in (*inputs, *outputs)):
                return
            nodes, edges = self.graph["nodes"], self.graph["edges"]
            flops = flop_registry.get(function.overloadpacket)
            flops = flops(*args, **kwargs, out_val=result) if flops else sum(tensor.numel() for tensor in outputs)
            made = sum(tensor.untyped_storage().nbytes() for tensor in {storage(tensor): tensor for tensor in outputs}.values())
            for source in dict.fromkeys(storage(tensor) for tensor in inputs):
                if source in self._writers:
                    delivered = next(tensor for tensor in inputs if storage(tensor) == source)
                    edges.append([self._writers[source], len(nodes), delivered.numel() * delivered.element_size()])
            for tensor in outputs:
                self._writers[storage(tensor)] = len(nodes)
            self._kept.append(outputs)
            nodes.append(
                {
                    "operator": name,
                    "hyperparameters": list(numbers_of(values)),
                    "inputs": [list(tensor.shape) for tensor in inputs],
                    "outputs": [list(tensor.shape) for tensor in outputs],
                    "input_bytes": sum(tensor.numel() * tensor.element_size() for tensor in inputs),
                    "output_bytes": sum(tensor.numel() * tensor.element_size() for tensor in outputs),
                    "temporary_bytes": max(0, taken - made),
                    "flops": flops if math.isfinite(flops) else 0,
                }
            )

    return Recorder()

"""What-ifs: one change each to how a script trains, made under `gpucast run --what-if NAME` without changing the script itself.

Each has the same effect, to the byte, as a change written into the script by hand: tests/python/test_run_what_if.py checks that.
docs/reference/explain.md names them. Each counts its changes; a what-if without any says why.
"""

import copy
import functools
import inspect
import threading

from . import places, process, session
from .what_if_accumulate import Accumulate
from .what_if_base import WhatIf, class_name, listed, wrap
from .what_if_compile import Compile
from .what_if_fsdp import Fsdp
from .what_if_loss import ChunkedLoss
from .what_if_optimizer import EightBit, Factored, InBackward, Offload, Switches
from .what_if_weights import Bf16Weights

_active = []
_torch = None
_CACHES = ("past_key_value", "past_key_values", "layer_past")  # caches of transformers: a recomputation would fill them a second time


def install_at_import(torch):
    """Right after `import torch`: what-ifs that act on the creation of optimizers and data loaders."""
    global _torch
    _torch = WhatIf.torch = torch
    for name in session.settings().get("what_if", ()):
        kind, _, argument = name.partition(":")
        _active.append(_KINDS[kind](name, argument))
    _refuse_steps_of_parts()
    for what_if in sorted(
        _active, key=lambda what_if: isinstance(what_if, MicroBatch)
    ):  # it decides which steps happen: outside of the others
        what_if.install(what_if.at_import)


def _refuse_steps_of_parts():
    """A step in each backward pass is none of the whole batch."""
    in_parts = [what_if.name for what_if in _active if isinstance(what_if, MicroBatch)]
    for what_if in _active:
        if in_parts and isinstance(what_if, InBackward):
            what_if.failed(f"{in_parts[0]} adds up the gradients of several backward passes, and this steps in each of them")


def install_at_cuda_start():
    """At the first CUDA call, after the hooks: what-ifs that act on modules and on backward. Autocast goes outside of checkpoints."""
    for what_if in sorted(_active, key=lambda what_if: isinstance(what_if, Bf16)):
        what_if.install(what_if.at_cuda_start)


def record():
    """For the capture's process record; {} without what-ifs."""
    return {"what_if": [what_if.outcome() for what_if in _active]} if _active else {}


class SetToNone(WhatIf):
    """zero_grad(set_to_none=True)."""

    called = False

    def at_import(self):
        for owner in (_torch.nn.Module, _torch.optim.Optimizer):
            wrap(owner, "zero_grad", self._setting_to_none)

    def _setting_to_none(self, real):
        def zero_grad(owner, set_to_none=True):
            self.called = True
            if not set_to_none:
                self.acted(type(owner).__name__)
                places.note("set-to-none")
            return real(owner, set_to_none=True)

        return zero_grad

    def did(self):
        if self.count:
            return f"zero_grad of {listed(self.subjects)} set gradients to None instead of zeroing them"
        return "zero_grad sets gradients to None already" if self.called else "no zero_grad of an optimizer or a module was called"


class BatchSizes(WhatIf):
    """Another batch_size for DataLoaders and their BatchSamplers."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._changed = {}  # (id(dataset), batch size): datasets kept alive; a loader made again from ours is not changed twice
        self._samplers = []

    def new_size(self, size):
        """The size instead of `size`; the same: no change."""
        raise NotImplementedError

    def at_import(self):
        import torch.utils.data as data

        signature = inspect.signature(data.DataLoader.__init__)
        default = signature.parameters["batch_size"].default

        def around(real):
            def construct(*args, **kwargs):
                try:
                    given = signature.bind(*args, **kwargs)
                except TypeError:
                    return real(*args, **kwargs)
                sampler = given.arguments.get("batch_sampler")
                if sampler is None:
                    self._change_size(given.arguments, default)
                elif type(sampler) is data.BatchSampler:
                    self._change_sampler(sampler)
                result = real(*given.args, **given.kwargs)
                self._samplers.append(getattr(given.arguments["self"], "batch_sampler", None))
                return result

            return construct

        wrap(data.DataLoader, "__init__", around)

    def _change_size(self, arguments, default):
        size, dataset = arguments.get("batch_size", default), arguments.get("dataset")
        if not isinstance(size, int) or (id(dataset), size) in self._changed:
            return
        new = self.new_size(size)
        if new == size:
            return
        arguments["batch_size"] = new
        places.note("batch_size", called="DataLoader")
        self._changed[id(dataset), new] = dataset
        self.acted(f"batch_size {size} of a DataLoader became {new}")

    def _change_sampler(self, sampler):
        size = sampler.batch_size
        if any(sampler is known for known in self._samplers):
            return
        new = self.new_size(size)
        if new == size:
            return
        sampler.batch_size = new
        places.note("batch_sampler")
        self.acted(f"batch_size {size} of a BatchSampler became {new}")


class HalfBatch(BatchSizes):
    """Half the batch_size of each DataLoader. If the command has a batch option, `gpucast run` halves that instead."""

    def new_size(self, size):
        return max(size // 2, 1)

    def did(self):
        if self.count:
            return listed(self.subjects)
        return "the command has no batch option that gpucast knows, and the script no DataLoader with a batch_size of 2 or more"


class Batch(BatchSizes):
    """This batch_size for the first DataLoader, and for each other one of the same batch_size."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._size = int(argument)
        self._first = None

    def new_size(self, size):
        if self._first is None:
            self._first = size
            if size == self._size:  # the run is the requested one
                self.acted(f"batch_size {size} of a DataLoader is {size} already")
        return self._size if size == self._first else size

    def did(self):
        return listed(self.subjects) if self.count else "the script made no DataLoader with a batch_size"


class MicroBatch(BatchSizes):
    """The batch in parts, with the gradients of all of them added up for each step of the optimizer.

    The batch becomes smaller as for HalfBatch. A script without a batch option and without a DataLoader stays as it is."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._parts = int(argument)
        self._accumulate = Accumulate(name, lambda: self._parts if self.count else 1)
        self._command = session.settings().get("divided_batch", "")  # "--batch 64 became 16"

    def at_import(self):
        if self._command:
            self.acted(self._command)
            places.detail(self.name, by_command=True)
        else:
            super().at_import()
        self._accumulate.at_import()

    def at_cuda_start(self):
        self._accumulate.at_cuda_start()

    def new_size(self, size):
        return size // self._parts if size % self._parts == 0 else size

    def did(self):
        if not self.count:
            return f"no batch that can be divided by {self._parts} was found: neither an option of the command nor a DataLoader has one"
        return f"{listed(self.subjects)}, and {self._parts} backward passes for each step of the optimizer"


class Checkpoint(WhatIf):
    """torch.utils.checkpoint(module, ..., use_reentrant=False) wherever a module of this class or path is called.

    "Block=0-3,7": of the modules of class Block only these, numbered from 0 in the order in which they first run with gradients."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._wanted, _, chosen = argument.partition("=")
        self._chosen = _numbers(chosen) if chosen else None
        self._order = {}  # id of a module of the class -> (its number, the module)
        self._inside = threading.local()
        self._modules = {}  # id -> module
        self._seen = {}  # names of classes that ran
        self._caches = {}  # names of arguments that the modules got, and not their recomputation

    def at_cuda_start(self):
        from torch.utils.checkpoint import checkpoint

        def around(real):
            def run(module, *args, **kwargs):
                self._inside.on = True
                try:
                    return real(module, *args, **kwargs)
                finally:
                    self._inside.on = False

            def call(module, *args, **kwargs):
                if not self.safely(self._wants, module):
                    return real(module, *args, **kwargs)
                if id(module) not in self._modules:
                    self._modules[id(module)] = module
                    self.acted(class_name(module))
                return checkpoint(functools.partial(run, module), *args, use_reentrant=False, **self._without_caches(kwargs))

            return call

        wrap(_torch.nn.Module, "__call__", around)

    def _wants(self, module):
        if not process.job_is_captured() or process.is_compiling():
            return False
        # Inside a module that is recomputed anyway, and in the recomputation itself, there is nothing left to save.
        if getattr(self._inside, "on", False) or not _torch.is_grad_enabled():
            return False
        name = class_name(module)
        self._seen[name] = True
        if self._wanted in (name, type(module).__name__):
            number, _ = self._order.setdefault(id(module), (len(self._order), module))
            return self._chosen is None or number in self._chosen
        modules = process.recorder.modules
        number = modules.number(module)
        return number > 0 and bool(modules.names[number - 1]) and modules.names[number - 1] == self._wanted

    def _without_caches(self, kwargs):
        for name in _CACHES:
            if kwargs.get(name) is not None:
                kwargs[name] = None
                self._caches[name] = True
        return kwargs

    def outcome(self):
        self.safely(self._name_modules)
        return super().outcome()

    def _name_modules(self):
        found = places.paths_of(list(self._modules.values())) if self._modules else None
        if found:
            model, paths = found
            every = [path for path, module in model.named_modules() if self._wanted in (class_name(module), type(module).__name__)]
            places.detail(self.name, model=id(model), paths=paths, is_every_one=sorted(every) == sorted(paths), caches=list(self._caches))

    def did(self):
        if self.count:
            plural = "" if self.count == 1 else "s"
            return f"the forward of {self.count} module{plural} ({listed(self.subjects)}) recomputed in backward instead of kept"
        if self._order:
            return f"{len(self._order)} modules of class {self._wanted} ran with gradients, and none of them has one of these numbers"
        return f"no module of class or path {self._wanted} ran with gradients; those that did: {listed(self._seen) or 'none'}"


def _numbers(text):
    """ "0-2,5" -> {0, 1, 2, 5}"""
    out = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        out.update(range(int(first), int(last or first) + 1))
    return out


class Bf16(WhatIf):
    """torch.autocast("cuda", dtype=torch.bfloat16) from the outermost forward of a model up to the backward of its loss."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._local = threading.local()  # depth of module calls; the autocast that is on
        self._already = False

    def at_cuda_start(self):
        wrap(_torch.nn.Module, "__call__", self._calling)
        # After the hooks: autocast's copies of weights are freed while the phase is still the loss.
        for name in ("backward", "grad"):
            wrap(_torch.autograd, name, self._leaving_before)
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *_: self._leave())

    def _calling(self, real):
        local = self._local

        def call(module, *args, **kwargs):
            depth = getattr(local, "depth", 0)
            if depth > 0 or not self.safely(self._enters, module):
                return real(module, *args, **kwargs)
            autocast = _torch.autocast("cuda", dtype=_torch.bfloat16)
            local.depth = depth + 1
            try:
                self.acted(type(module).__name__)
                if _torch.is_grad_enabled():
                    autocast.__enter__()
                    local.autocast = autocast
                    return real(module, *args, **kwargs)
                with autocast:  # no loss follows
                    return real(module, *args, **kwargs)
            finally:
                local.depth = depth

        return call

    def _enters(self, module):
        if not process.job_is_captured() or process.is_compiling() or getattr(self._local, "autocast", None) is not None:
            return False
        if next(module.parameters(), None) is None:  # for example a transform of the data, or a loss
            return False
        if _torch._C._current_graph_task_id() != -1:  # a recomputation in backward, which restores forward's state itself
            return False
        if _torch.is_autocast_enabled():
            self._already = True
            return False
        return True

    def _leave(self):
        autocast = getattr(self._local, "autocast", None)
        if autocast is not None:
            self._local.autocast = None
            autocast.__exit__(None, None, None)

    def _leaving_before(self, real):
        def differentiate(*args, **kwargs):
            self._leave()
            return real(*args, **kwargs)

        return differentiate

    def did(self):
        if self.count:
            return f"{listed(self.subjects)} and its loss ran under autocast with bfloat16"
        return "the script runs under autocast already" if self._already else "no module with parameters ran"


class Attention(WhatIf):
    """torch.nn.attention.sdpa_kernel(...) around the whole script: scaled_dot_product_attention has only this kernel."""

    _BACKENDS = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}

    def at_import(self):
        cuda = _torch.backends.cuda
        for name, backend in self._BACKENDS.items():
            enable = getattr(cuda, f"enable_{backend}_sdp", None)
            if enable is not None:  # cuDNN's since 2.5
                enable(name == self.argument)
                places.detail(self.name, **{enable.__name__: name == self.argument})
        wrap(_torch.nn.functional, "scaled_dot_product_attention", self._attending)

    def _attending(self, real):
        def scaled_dot_product_attention(*args, **kwargs):
            if not process.is_compiling():
                self.count = 1
            return real(*args, **kwargs)

        return scaled_dot_product_attention

    def did(self):
        return f"attention had the {self.argument} kernel only" if self.count else "scaled_dot_product_attention was not called"


class MaxLength(WhatIf):
    """Batches of texts from a DataLoader padded to this many tokens, as with padding="max_length" in the tokenizer.

    A batch of texts is a mapping with input_ids, or a tuple or list of whole-numbered tensors of one shape (texts, tokens).
    """

    _SOURCE = "input_ids"
    _OWN_LENGTH = ("labels", "decoder_input_ids", "decoder_attention_mask")  # of sequence-to-sequence models: the target's

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._length = int(argument)
        self._lengths = []  # of the original batches
        self._kept = 0  # batches of at least that length

    def at_import(self):
        from torch.utils.data import dataloader

        def around(real):
            def following(iterator):
                batch = real(iterator)
                padded = self.safely(self._padded, batch)
                return batch if padded is False else padded

            return following

        wrap(dataloader._BaseDataLoaderIter, "__next__", around)

    def _padded(self, batch):
        if hasattr(batch, "items") and hasattr(batch, "keys"):
            source = batch.get(self._SOURCE)
            if not _is_tokens(source):
                return batch
            length = self._seen(source)
            result = copy.copy(batch)  # a BatchEncoding stays one, with its other attributes
            if hasattr(result, "data") and isinstance(result.data, dict):
                result.data = dict(result.data)
            for name, tensor in batch.items():
                if not isinstance(tensor, _torch.Tensor) or tensor.dim() < 2 or len(tensor) != len(source):
                    continue
                own_length = name in self._OWN_LENGTH and tensor.dim() == 2
                is_mask = "mask" in str(name) and length in tensor.shape[1:]
                if own_length or is_mask or tensor.shape[1] == length:
                    result[name] = self._longer(tensor, tensor.shape[1] if own_length else length, -100 if name == "labels" else 0)
            return result
        if type(batch) in (tuple, list) and batch:
            tokens = [item for item in batch if isinstance(item, _torch.Tensor)]
            if len(tokens) == len(batch) and all(_is_tokens(item) and item.shape == tokens[0].shape for item in tokens):
                length = self._seen(tokens[0])
                return type(batch)(self._longer(item, length, 0) for item in tokens)
        return batch

    def _seen(self, tokens):
        length = tokens.shape[1]
        self._lengths.append(length)
        if length >= self._length:
            self._kept += 1
        else:
            self.acted("batches")
        return length

    def _longer(self, tensor, length, filling):
        """Along each dimension after the first that has the length of the batch's texts: an attention mask may have two."""
        missing = self._length - length
        if missing <= 0:
            return tensor
        padding = [part for size in reversed(tensor.shape[1:]) for part in (0, missing if size == length else 0)]
        result = _torch.nn.functional.pad(tensor, padding, value=filling)
        return result.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else result

    def did(self):
        if not self._lengths:
            return "no DataLoader gave a batch of texts: a mapping with input_ids, or tensors of whole numbers of one shape (texts, tokens)"
        seen = f"{min(self._lengths)} to {max(self._lengths)} tokens" if len(set(self._lengths)) > 1 else f"{self._lengths[0]} tokens"
        if not self.count:
            return f"the batches have {seen} already"
        left = f"; {self._kept} stayed as they are" if self._kept else ""
        return f"{self.count} batches of {seen} padded to {self._length}{left}"


def _is_tokens(value):
    return isinstance(value, _torch.Tensor) and value.dim() == 2 and not value.is_floating_point() and not value.is_complex()


_KINDS = {
    "set-to-none": SetToNone,
    "no-foreach": Switches,
    "foreach": Switches,
    "fused": Switches,
    "half-batch": HalfBatch,
    "batch": Batch,
    "micro-batch": MicroBatch,
    "checkpoint": Checkpoint,
    "attention": Attention,
    "bf16": Bf16,
    "compile": Compile,
    "bf16-weights": Bf16Weights,
    "chunked-loss": ChunkedLoss,
    "8bit-optimizer": EightBit,
    "factored-optimizer": Factored,
    "optimizer-in-backward": InBackward,
    "offload-optimizer": Offload,
    "fsdp": Fsdp,
    "max-length": MaxLength,
}

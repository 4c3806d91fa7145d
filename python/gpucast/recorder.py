"""Marks, modules and tensors of one capture, kept in memory until the end (docs/reference/capture-format.md)."""

import itertools
import time
import weakref


class Modules:
    """A number, a name and a parent for every nn.Module seen. Keeps no module alive."""

    def __init__(self):
        self._by_object = {}  # id(module) -> number; an entry goes when its module does
        self._references = {}
        self.parents = []  # by number - 1
        self.names = []
        self.types = []
        self._roots = []  # by number - 1: the number of the root whose name space `names` is in

    def number(self, module):
        return self._by_object.get(id(module), 0)

    def register_tree(self, root):
        """Numbers `root` and all below it. A tree registered before that turns out to be a part of this one is renamed."""
        tree = list(root.named_modules())
        inside = {self.number(module) for _, module in tree} - {0}
        by_name = {}
        for name, module in tree:
            parent = by_name.get(name.rpartition(".")[0], -1) if name else -1
            number = self.number(module)
            if number == 0:
                number = self._add(module, parent, name)
                self._roots[number - 1] = by_name.get("", number)
            elif self._roots[number - 1] in inside:
                self.parents[number - 1] = parent
                self.names[number - 1] = name
            by_name[name] = number
        root_number = by_name[""]
        for number in by_name.values():
            if self._roots[number - 1] in inside:
                self._roots[number - 1] = root_number
        return root_number

    def register_in(self, module, parent):
        """A module that is in no tree: made on the fly inside the forward of `parent`."""
        kind = type(module).__name__
        prefix = self.names[parent - 1]
        number = self._add(module, parent, f"{prefix}.<{kind}>" if prefix else f"<{kind}>")
        self._roots[number - 1] = self._roots[parent - 1]
        return number

    def _add(self, module, parent, name):
        key = id(module)
        self.parents.append(parent)
        self.names.append(name)
        self.types.append(type(module).__name__)
        self._roots.append(0)
        number = len(self.names)
        self._by_object[key] = number
        by_object, references = self._by_object, self._references

        def gone(_):
            by_object.pop(key, None)
            references.pop(key, None)

        references[key] = weakref.ref(module, gone)
        return number


class Recorder:
    def __init__(self):
        self.armed = False
        self.device = 0
        self.marks = []  # (sequence, allocs, frees, time_us, kind, value[, detail])
        self.tensors = []  # (sequence, kind, address, storage_bytes, name, module, dtype, shape)
        self.warnings = {}  # (code, message) -> details
        self.modules = Modules()
        self._sequence = itertools.count(1)
        # Counters of the allocator at the moment of arming, less what resets took from them: position = counter - base.
        self._base_allocs = 0
        self._base_frees = 0
        self._memory_stats = None
        self._vgpu_mark = None

    def arm(self, memory_stats, vgpu_mark, device):
        """`memory_stats(device)`: PyTorch's nested counters."""
        self._memory_stats = memory_stats
        self._vgpu_mark = vgpu_mark
        self.device = device
        counters = memory_stats(device)["allocation"]["all"]
        self._base_allocs, self._base_frees = counters["allocated"], counters["freed"]
        self.armed = True
        for sequence, *_ in self.marks:  # made before the first CUDA call
            vgpu_mark(sequence)

    def position(self):
        """How many alloc and free_requested events the allocator's history holds at this moment."""
        if not self.armed:
            return 0, 0
        # The cheapest exact source in all releases: about 15 us. Nothing cheaper is reachable from Python.
        return self.position_of(self._memory_stats(self.device))

    def position_of(self, stats):
        """The same, of counters that were read before."""
        counters = stats["allocation"]["all"]
        return counters["allocated"] - self._base_allocs, counters["freed"] - self._base_frees

    def counters_reset(self, reset):
        """Calls `reset`, which sets the allocator's accumulated counters to 0, and keeps positions going."""
        allocs, frees = self.position()
        reset()
        self._base_allocs, self._base_frees = -allocs, -frees

    def mark(self, kind, value, position=None, detail=None):
        allocs, frees = position or self.position()
        sequence = next(self._sequence)
        mark = (sequence, allocs, frees, time.time_ns() // 1000, kind, value)
        self.marks.append(mark if detail is None else (*mark, detail))
        if self.armed:
            self._vgpu_mark(sequence)
        return sequence

    def mark_tensors(self, entries, position=None):
        """`entries`: (kind, address, storage_bytes, name, module, dtype, shape) of tensors alive now."""
        if entries:
            sequence = self.mark("tensors", "", position)
            self.tensors.extend((sequence, *entry) for entry in entries)

    def warn(self, code, message):
        self.warnings[(code, message)] = True

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
        self.devices = []  # in the order in which memory was first taken from them
        self.marks = []  # (sequence, position, time_us, kind, value[, detail])
        self.tensors = []  # (sequence, device, kind, address, storage_bytes, name, module, dtype, shape)
        self.warnings = {}  # (code, message) -> details
        self.modules = Modules()
        self._sequence = itertools.count(1)
        # By index in `devices`: (allocs, frees) of the allocator at the moment of arming, minus the amounts that resets removed.
        self._bases = []
        self._used = None
        self._memory_stats = None
        self._vgpu_mark = None

    def arm(self, memory_stats, vgpu_mark, used):
        """`memory_stats(device)`: PyTorch's nested counters. `used`: the virtual GPU's own list of used devices, which grows."""
        self._memory_stats = memory_stats
        self._vgpu_mark = vgpu_mark
        self._used = used
        self.devices = list(used.device[: used.count])
        self._bases = [self._counters(device) for device in self.devices]
        self.armed = True
        for sequence, *_ in self.marks:  # made before the first CUDA call
            vgpu_mark(sequence)

    def _counters(self, device):
        # The cheapest exact source in all releases: about 15 us. Nothing cheaper is reachable from Python.
        counters = self._memory_stats(device)["allocation"]["all"]
        return counters["allocated"], counters["freed"]

    def position(self):
        """The number of alloc and free_requested events in the allocator's history at this moment, by index in `devices`. A device that
        was first used later is missing at the end: it had none."""
        if not self.armed:
            return ()
        if self._used.count != len(self.devices):
            new = self._used.device[len(self.devices) : self._used.count]
            self._bases += [(0, 0)] * len(new)
            self.devices += new
        found = []
        for device, (base_allocs, base_frees) in zip(self.devices, self._bases):
            allocs, frees = self._counters(device)
            found.append((allocs - base_allocs, frees - base_frees))
        return tuple(found)

    def position_on(self, device, stats):
        """(allocs, frees) of one device, from counters that were read before."""
        counters = stats["allocation"]["all"]
        base_allocs, base_frees = self._bases[self.devices.index(device)]
        return counters["allocated"] - base_allocs, counters["freed"] - base_frees

    def devices_allocated_on(self):
        """The devices on which PyTorch's allocator has given memory, by number."""
        return sorted(device for device, (allocs, _) in zip(self.devices, self.position()) if allocs > 0)

    def counters_reset(self, reset):
        """Calls `reset`, which sets the accumulated counters of some device's allocator to 0, and keeps positions going."""
        before = self.position()
        reset()
        for place, (allocs, frees) in enumerate(before):
            now_allocs, now_frees = self._counters(self.devices[place])
            self._bases[place] = (now_allocs - allocs, now_frees - frees)

    def mark(self, kind, value, position=None, detail=None):
        if position is None:
            position = self.position()
        sequence = next(self._sequence)
        mark = (sequence, position, time.time_ns() // 1000, kind, value)
        self.marks.append(mark if detail is None else (*mark, detail))
        if self.armed:
            self._vgpu_mark(sequence)
        return sequence

    def mark_tensors(self, entries, position=None):
        """`entries`: (device, kind, address, storage_bytes, name, module, dtype, shape) of tensors alive now."""
        if entries:
            sequence = self.mark("tensors", "", position)
            self.tensors.extend((sequence, *entry) for entry in entries)

    def warn(self, code, message):
        self.warnings[(code, message)] = True

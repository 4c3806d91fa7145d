"""Where PyTorch keeps an operator's name and arguments in memory, so that the virtual GPU's core can read them when an operator begins
(src/vgpu/core/running_operators.cc). The layout is not part of PyTorch's interface: it is found by running a few operators with known
arguments, and checked with others. If it cannot be found, operators are not followed."""

import ctypes
import struct

_ADD = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"
_REMOVE = "_ZN2at14removeCallbackEm"
_NAME = "_ZNK2at14RecordFunction4nameEv"
_PROBE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)

_RECORD_BYTES, _LIST_BYTES, _TENSOR_BYTES = 768, 96, 512  # how much of an object is searched
_VALUE_BYTES = 16
_INLINE = 5  # dimensions that a tensor keeps inside itself
_KEYS = ("Dense", "CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "ADInplaceOrView", "Conjugate", "Negative")
_TYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64"),
)


class NotFound(Exception):
    pass


class _Layout(ctypes.Structure):
    """gpucast_vgpu_operator_layout"""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("inputs", "tensor_tag", "integer_tag", "boolean_tag", "list_tag", "list_values")),
        *((name, ctypes.c_uint32) for name in ("storage", "offset", "sizes", "type", "keys", "memory")),
        *((name, ctypes.c_uint64) for name in ("cpu_key", "cuda_key", "plain_keys")),
        ("type_names", (ctypes.c_char * 24) * 64),
        ("whole_bytes", ctypes.c_uint8 * 64),
    )


class Follower:
    """Finds the layout when it is made; raises NotFound."""

    def __init__(self, torch, core):
        self._torch, self._core = torch, core
        library = ctypes.PyDLL(f"{torch.__path__[0]}/lib/libtorch_cpu.so")  # it is loaded already
        names = (_ADD, _REMOVE, _NAME)
        if not all(hasattr(library, name) for name in names):
            raise NotFound("PyTorch does not export the functions of its observers")
        self._add, self._remove, self._name = (ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in names)
        core.gpucast_vgpu_watch_operators.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Layout), ctypes.c_void_p]
        core.gpucast_vgpu_watch_operators.restype = ctypes.c_uint64
        core.gpucast_vgpu_last_operator.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        core.gpucast_vgpu_last_operator.restype = ctypes.c_size_t
        self._memory = open("/proc/self/mem", "rb", buffering=0)  # noqa: SIM115  # reads of wrong addresses are errors, not crashes
        try:
            with torch.no_grad():
                self._layout = self._find()
                self._check()
        finally:
            self._memory.close()

    def follow(self):
        """From now on, in all threads."""
        self._watch(self._layout)
        self._core.gpucast_vgpu_last_operator(None, 0)

    # ---- memory ------------------------------------------------------------------------------------------------------------------

    def _read(self, address, size):
        try:
            self._memory.seek(address)
            return self._memory.read(size)
        except (OSError, ValueError, OverflowError):
            return b""

    def _words(self, address, size):
        data = self._read(address, size)
        return struct.unpack(f"{len(data) // 8}Q", data[: len(data) // 8 * 8])

    # ---- the layout --------------------------------------------------------------------------------------------------------------

    def _watch(self, layout, probe=None):
        pointer = None if layout is None else ctypes.byref(layout)
        handle = self._core.gpucast_vgpu_watch_operators(self._add, self._name, pointer, probe and ctypes.cast(probe, ctypes.c_void_p))
        if not handle:
            raise NotFound("PyTorch takes no observer")
        return handle

    def _unwatch(self, handle):
        ctypes.PYFUNCTYPE(None, ctypes.c_uint64)(self._remove.value)(handle)

    def _seen(self, name, call, look):
        """The results of `look(address of the record)` for each operator of this name that `call` runs."""
        found = []

        def probe(record, called):
            if called == name:
                found.append(look(record))

        kept = _PROBE(probe)
        handle = self._watch(None, kept)
        try:
            call()
        finally:
            self._unwatch(handle)
        if not found:
            raise NotFound(f"no record of {name.decode()}")
        return found[0]

    def _find(self):
        torch = self._torch
        a, b = torch.empty(3, 5, 7), torch.empty(3, 5, 7)
        places, values = self._seen(b"aten::_softmax", lambda: torch._softmax(a, 1, False), lambda record: self._inputs(record, a, 3))
        layout = _Layout()
        layout.inputs = places
        layout.tensor_tag, layout.integer_tag, layout.boolean_tag = (_tag(value) for value in values)
        if struct.unpack_from("q", values[1])[0] != 1 or values[2][0] != 0:
            raise NotFound("values of an operator")
        layout.list_tag, layout.list_values = self._lists(layout, a, b)
        self._tensors(layout)
        return layout

    def _inputs(self, record, tensor, count):
        """(the place in the record, the values) of an operator's inputs; the first input is the tensor."""
        words = self._words(record, _RECORD_BYTES)
        for i, (pointer, number) in enumerate(zip(words, words[1:])):
            if number != count:
                continue
            values = self._read(pointer, count * _VALUE_BYTES)
            if len(values) == count * _VALUE_BYTES and struct.unpack_from("Q", values)[0] == tensor._cdata:
                return 8 * i, [values[_VALUE_BYTES * k : _VALUE_BYTES * (k + 1)] for k in range(count)]
        raise NotFound("the inputs of an operator")

    def _lists(self, layout, a, b):
        def of_cat(record):
            pointer, count = struct.unpack("QQ", self._read(record + layout.inputs, 16))
            values = self._read(pointer, count * _VALUE_BYTES)
            start = struct.unpack_from("Q", values)[0]
            words = self._words(start, _LIST_BYTES)
            for i, (begin, end) in enumerate(zip(words, words[1:])):
                if end - begin != 2 * _VALUE_BYTES:
                    continue
                entries = self._read(begin, 2 * _VALUE_BYTES)
                if entries[:8] == struct.pack("Q", a._cdata) and entries[_VALUE_BYTES:][:8] == struct.pack("Q", b._cdata):
                    if _tag(entries) != layout.tensor_tag:
                        break
                    return _tag(values), 8 * i
            raise NotFound("the values of a list")

        return self._seen(b"aten::cat", lambda: self._torch.cat([a, b], 2), of_cat)

    def _tensors(self, layout):
        torch = self._torch
        small = torch.empty(11, 13, 17)
        pattern = [3, 11, 13, 17, None, None, 221, 17, 1]
        words = self._words(small._cdata, _TENSOR_BYTES)
        places = [i for i in range(len(words)) if all(one in (None, word) for one, word in zip(pattern, words[i:])) and i + 9 <= len(words)]
        if len(places) != 1:
            raise NotFound("a tensor's sizes")
        layout.sizes = 8 * places[0]
        parts = small[3:, 2:, 5], torch.empty(40)[23:]
        storages = [part.untyped_storage() for part in parts]
        layout.storage = self._place("a tensor's storage", [(part, storage._cdata) for part, storage in zip(parts, storages)])
        layout.memory = self._place("a storage's memory", [(storage, storage.data_ptr()) for storage in storages])
        layout.offset = self._place("a tensor's offset", [(part, part.storage_offset()) for part in parts])
        large = torch.empty(2, 3, 2, 1, 4, 2)
        dimensions, pointer = self._words(large._cdata + layout.sizes, 16)
        if dimensions != 6 or self._words(pointer, 96) != (*large.shape, *large.stride()):
            raise NotFound("the sizes of a tensor with many dimensions")
        made = {name: torch.empty(1, dtype=getattr(torch, name)) for name in _TYPES if hasattr(torch, name)}
        memory = {name: self._read(tensor._cdata, 256) for name, tensor in made.items()}
        known = {"float32": 6, "float16": 5, "int64": 4, "bool": 11, "bfloat16": 15}
        places = [i for i in range(layout.sizes, 256, 2) if all(_number(memory[name], i) == number for name, number in known.items())]
        numbers = {name: _number(data, places[0]) for name, data in memory.items()} if places else {}
        if len(set(numbers.values())) != len(memory) or max(numbers.values()) >= 64:
            raise NotFound("a tensor's element type")
        layout.type = places[0]
        for name, number in numbers.items():
            layout.type_names[number].value = name.encode()
            if "int" in name or name == "bool":
                layout.whole_bytes[number] = made[name].element_size()
        self._keys(layout, small)

    def _place(self, what, known):
        """Where the objects of these tensors have these numbers."""
        for place in range(0, _TENSOR_BYTES, 8):
            if all(self._words(one._cdata + place, 8) == (number,) for one, number in known):
                return place
        raise NotFound(what)

    def _keys(self, layout, tensor):
        torch = self._torch
        keys = {}
        for name in _KEYS:
            key = getattr(torch._C.DispatchKey, name, None)
            keys[name] = 0 if key is None else self._bits(torch._C.DispatchKeySet(key))
        backends = ~(keys["CPU"] & keys["CUDA"])
        layout.cpu_key, layout.cuda_key = keys["CPU"] & backends, keys["CUDA"] & backends
        views = torch.empty(2, dtype=torch.complex64).conj(), torch.empty(2, 3, requires_grad=True), tensor
        plain = [self._bits(torch._C._dispatch_keys(one)) for one in views]
        for number in (*keys.values(), *plain):
            layout.plain_keys |= number
        if not layout.cpu_key or not layout.cuda_key or layout.cpu_key == layout.cuda_key:
            raise NotFound("the devices' dispatch keys")
        with torch.inference_mode():
            inference = torch.empty(2)
        known = [(one, self._bits(torch._C._dispatch_keys(one))) for one in (*views, inference, torch.empty(2, device="meta"))]
        layout.keys = self._place("a tensor's dispatch keys", known)

    def _bits(self, keys):
        """A set of dispatch keys as PyTorch keeps it."""
        return keys.raw_repr() if hasattr(keys, "raw_repr") else self._pointed(keys)

    def _pointed(self, made):
        """The first word of what an object of pybind11 points to: PyTorch before 2.6 has no other way to a set of keys."""
        words = self._words(id(made) + object.__basicsize__, 8)
        pointed = self._words(words[0], 8) if words else ()
        if not pointed:
            raise NotFound("what an object of pybind11 points to")
        return pointed[0]

    def _check(self):
        """Operators with other arguments, as the core reads them with this layout."""
        torch = self._torch
        a = torch.empty(2, 3, 4, dtype=torch.bfloat16)
        t = '{"bfloat16": [[2, 3, 4], [12, 4, 1], "cpu"]}'
        m = '{"float32": [[6, 4], [1, 6], "cpu"]}'
        calls = (
            (lambda: torch.sum(a, [0, -1], True), f"aten::sum [{t}, [0, -1], true, null]"),
            (lambda: torch.stack([a, a, a], 1), None),
            (lambda: torch.cat([a, a, a], 2), f"aten::cat [[{t}, {t}, {t}], 2]"),
            (lambda: torch.empty(4, 6).t().relu(), f"aten::relu [{m}]"),
            (lambda: a.add_(a, alpha=2), f"aten::add_ [{t}, {t}, 2]"),
        )
        handle = self._watch(self._layout)
        try:
            for call, expected in calls:
                call()
                size = self._core.gpucast_vgpu_last_operator(b"", 0)
                text = ctypes.create_string_buffer(size)
                self._core.gpucast_vgpu_last_operator(text, size)
                if expected is not None and text.raw.decode(errors="replace") != expected:
                    raise NotFound(f"{text.raw.decode(errors='replace')} instead of {expected}")
        finally:
            self._unwatch(handle)


def _tag(value):
    return struct.unpack_from("I", value, 8)[0]


def _number(data, place):
    return struct.unpack_from("H", data, place)[0] if place + 2 <= len(data) else -1

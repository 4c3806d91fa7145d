"""Memory that grows from step to step: whether a run must go on to be certain, and what holds the tensors of past steps."""

import ast
import collections
import gc
import os
import sys
import time
import types
from bisect import bisect_left

from . import patching, process

_LEAST = 6  # steps: after 6, the survivors of steps 2, 3 and 4 show whether each step leaves the same
_LATER = (9, 13, 20, 30, 45, 60)  # where a run that goes on looks again: a buffer may be filling
_LONGEST_S = 60  # the run goes on for so long at most
_MOST_NODES = 500_000  # of autograd, followed
_MOST_NAMED = 40  # survivors whose holders are looked for
_MOST_LEVELS, _MOST_WIDE = 14, 200  # from a tensor up to a name; objects of one level
_MOST_LINKS = 3  # of a name: trainer.metrics.values

_ends = []  # after each step: the bytes that tensors asked for, the number of the next autograd node
_began = None  # when the first growth was seen
_certain = False  # nothing more to learn
_next = _LEAST
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


# ---- during the run ------------------------------------------------------------------------------------------------------------------


def note_step():
    """Called after each step."""
    device = process.torch.cuda.current_device()
    number = getattr(process.torch.autograd, "_get_sequence_nr", None)
    # Not the allocated bytes: a block may be up to 1 MiB larger than what its tensor asked for, and another one the next time.
    asked = process.torch._C._cuda_memoryStats(device)["requested_bytes"]["all"]["current"]
    _ends.append((asked, number() if number else 0))


def forget_steps():
    """What was noted was no step."""
    _ends.clear()


def certain():
    """Whether growth was seen that more steps would only repeat."""
    return _certain


def wants_more():
    """Whether more steps would show if memory grows: called when a run would end, and after each further step."""
    global _certain
    if _certain or "growth" in patching.disabled:
        return False
    try:
        return _wants_more()
    except Exception as error:
        patching.fail("growth", error)
        return False


def _wants_more():
    global _certain, _began, _next
    allocated = [end[0] for end in _ends]
    # What one step adds goes away with the next where only the lengths of batches differ.
    grows = len(allocated) >= 2 and (min(allocated[2:][-3:] or [0]) > allocated[1] or allocated[-1] > allocated[-2])
    if not grows:
        return False
    _began = _began or time.monotonic()
    if time.monotonic() - _began > _LONGEST_S:
        return False
    if len(allocated) < _next:
        return True
    kept = _kept(_alive_by_step())
    counts = [sum(kept.get(step, {}).values()) for step in range(2, len(allocated) - 1)]
    recent = counts[-4:]
    later = next((number for number in _LATER if number > len(allocated)), None)
    left = [step for step, size in enumerate(counts, 2) if size]
    if left and not any(recent):
        # The results of a validation: the next one shows whether they are kept each time.
        apart = max((after - before for before, after in zip(left, left[1:])), default=left[0])
        _next = len(allocated) + 1
        return len(allocated) <= left[-1] + apart + 2
    if not any(recent):
        # A tensor that is replaced by a larger one each step leaves nothing of its past.
        rises = all(after > before for before, after in zip(allocated[1:], allocated[2:]))
        if not rises or later is None:
            return False
        if len(allocated) > _LATER[0] and not any(holder["removes"] for holder in _holders(_newest(_alive_by_step()))):
            return False
        _next = later
        return True
    holders = _holders(kept)
    if any(holder["bound"] for holder in holders):  # it fills up to a known size
        return False
    if left and left[0] > 3 and any(holder["removes"] for holder in holders):  # the oldest are gone: it is full
        return False
    open_ended = holders and not any(holder["removes"] or holder["container"] == "dict" for holder in holders)
    # Two equal amounts, as far apart as the first from the start; every step, or every few steps.
    regular = len(left) >= 2 and counts[left[-1] - 2] == counts[left[-2] - 2] and left[-1] - left[-2] <= left[0]
    if open_ended and regular and (len(set(recent)) == 1 or left[-1] - left[-2] > 1):
        _certain = True
        return False
    if later is None:
        _certain = True
        return False
    _next = later
    return True


# ---- survivors ----------------------------------------------------------------------------------------------------------------------


def _alive_by_step(snapshot=None):
    """Of each step: address -> bytes of the blocks that it made and that are alive now."""
    device = process.torch.cuda.current_device()
    place = process.recorder.devices.index(device)
    if snapshot is None:
        snapshot = process.torch.cuda.memory._snapshot()
    ends = [mark[1][place][0] if place < len(mark[1]) else 0 for mark in sorted(process.recorder.marks) if mark[3] == "step"]
    alive, allocs = {}, 0
    for event in snapshot["device_traces"][device]:
        if event["action"] == "alloc":
            allocs += 1
            alive[event["addr"]] = (bisect_left(ends, allocs) + 1, event["size"])
        elif event["action"] == "free_requested":
            alive.pop(event["addr"], None)
    blocks = {}
    for address, (step, size) in alive.items():
        blocks.setdefault(step, {})[address] = size
    return blocks


def _kept(blocks):
    """The blocks of past steps, without the first: it sets up what PyTorch and the optimizer keep."""
    return {step: made for step, made in blocks.items() if 2 <= step <= len(_ends) - 2}


def _newest(blocks):
    """The blocks of the last step, and of what came after it."""
    return {step: made for step, made in blocks.items() if step >= len(_ends) - 1}


def record(snapshot):
    """The holders of blocks that past steps made, as a record of the capture; None: no such blocks are left."""
    if "growth" in patching.disabled or len(_ends) < 4:
        return None
    try:
        blocks = _alive_by_step(snapshot)
        if not _kept(blocks) and _ends[-1][0] <= _ends[1][0]:
            return None
        # Nothing of past steps: a tensor may be replaced by a larger one each step. The holders of the newest tensors.
        found = _holders(_kept(blocks) or _newest(blocks))
        return {"record": "holders", "holders": found} if found else None
    except Exception as error:
        patching.fail("growth", error)
        return None


# ---- what holds them -----------------------------------------------------------------------------------------------------------------


def _holders(kept):
    """What holds the blocks `kept` (step -> address -> bytes): collections and variables of the script."""
    torch = process.torch
    step_of = {address: step for step, blocks in kept.items() for address in blocks}
    like, chained = {}, []  # (shape, dtype) -> [(step, address, tensor)]
    with torch._C.DisableTorchFunction():
        for one in gc.get_objects():
            if not issubclass(type(one), torch.Tensor) or isinstance(one, torch.nn.Parameter):
                continue
            try:
                if not one.is_cuda:
                    continue
                address = one.untyped_storage().data_ptr()
                key = tuple(one.shape), one.dtype, one.grad_fn is None
            except Exception:
                continue
            if key[2] is False:
                chained.append(one)
            if address in step_of:
                like.setdefault(key, []).append((step_of[address], address, one))
        old = _reaching_back(chained)
        sample = []
        for alike in like.values():
            alike.sort(key=lambda entry: entry[0])
            places = sorted({0, len(alike) // 2, len(alike) - 1})
            sample += [(alike[place][1], alike[place][2]) for place in places]
        sample = sample[:_MOST_NAMED]
        sampled = {id(tensor) for _, tensor in sample}
        deep = sorted(old.values(), key=lambda entry: -entry[1])
        sample += [(0, entry[0]) for entry in deep if id(entry[0]) not in sampled][:_MOST_NAMED]
        ours = {id(like), id(chained), id(old), id(sample), id(sampled), id(deep)} | {
            id(entry) for entry in (*sample, *like.values(), *old.values())
        }
        ours |= {id(entry) for alike in like.values() for entry in alike}
        return _Search(ours).holders(sample, old)


def _reaching_back(tensors):
    """Tensors with nodes of past steps in their graph: id -> (tensor, how many such nodes, its own node)."""
    last = len(_ends) - 2
    if last < 2 or not _ends[0][1]:
        return {}
    begin, end = _ends[0][1], _ends[last - 1][1]
    found, left = {}, _MOST_NODES
    for tensor in tensors:
        waiting, seen, old = [tensor.grad_fn], {}, 0
        while waiting and left > 0:
            node = waiting.pop()
            if node is None or id(node) in seen:
                continue
            seen[id(node)] = node  # keeps its id unique
            left -= 1
            old += begin <= node._sequence_nr() < end
            waiting.extend(following for following, _ in node.next_functions)
        if old:
            found[id(tensor)] = (tensor, old, tensor.grad_fn.name())
    return found


class _Search:
    """Goes from tensors up through the objects that refer to them, to a name in the script."""

    def __init__(self, ours):
        self._ours = ours  # ids of our own objects
        self._names = {}  # id -> (name, what kind of name, file)
        self._dictionaries = {id(vars(module)): module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)}
        self._parents = {}  # id -> the objects that refer to it
        ours |= {id(self._names), id(self._dictionaries), id(self._parents), id(vars(self))}
        torch_folder = os.path.dirname(process.torch.__file__) + os.sep
        for frame in _frames():
            code = frame.f_code
            if not code.co_flags & 1 or code.co_filename.startswith((_OURS, torch_folder, "<frozen")):
                continue  # names of modules and classes are in their dictionaries
            values = frame.f_locals
            for name, value in values.items():
                self._names.setdefault(id(value), (name, f"a variable of {code.co_name}()", code.co_filename))
            if sys.version_info < (3, 13):
                values.clear()  # a copy: the frame would keep all values alive until it ends
        main = sys.modules.get("__main__")
        for name, value in list(vars(main).items()) if main else ():
            if not name.startswith("__"):
                self._names.setdefault(id(value), (name, "a variable of the script", getattr(main, "__file__", None) or ""))

    def holders(self, sample, old):
        """One entry for each collection or variable."""
        self._climb([tensor for _, tensor in sample])
        groups = {}
        for address, tensor in sample:
            key, holder = self._holder_of(tensor)
            group = groups.setdefault(key, {**holder, "addresses": [], "graph": False, "old_nodes": 0, "node": ""})
            if address:
                group["addresses"].append(address)
            if id(tensor) in old:
                _, count, node = old[id(tensor)]
                group.update(graph=True, old_nodes=max(count, group["old_nodes"]), node=node)
        # A tensor without referrers belongs to a node of a graph, which is no object of Python's. The deepest graph comes first.
        found = [group for group in groups.values() if group["name"] or group["length"]]
        return sorted(found, key=lambda group: -group["old_nodes"])

    def _climb(self, level):
        """Fills `_parents`, level by level: one pass over all objects finds the referrers of a whole level."""
        seen = {id(one) for one in level}
        running = {id(frame) for frame in _running_frames()}  # their variables have names already
        self._ours |= {id(seen), id(running)}
        for _ in range(_MOST_LEVELS):
            self._ours.add(id(level))
            level = [one for one in level if id(one) not in self._names and not isinstance(one, types.ModuleType)]
            if not level:
                return
            self._ours.add(id(level))
            wanted = {id(one): one for one in level}
            self._ours.add(id(wanted))
            referrers = gc.get_referrers(*level)
            self._ours.add(id(referrers))
            following = []
            self._ours.add(id(following))
            for parent in referrers:
                if (
                    id(parent) in self._ours
                    or id(parent) in running
                    or isinstance(parent, _Search)
                    or type(parent).__name__ == "list_iterator"
                ):
                    continue
                parent_of = {id(child) for child in gc.get_referents(parent)} & wanted.keys()
                for child in parent_of:
                    known = self._parents.setdefault(child, [])
                    self._ours.add(id(known))
                    known.append(parent)
                if id(parent) not in seen and id(parent) not in self._dictionaries:
                    seen.add(id(parent))
                    following.append(parent)
            level = following[:_MOST_WIDE]

    def _holder_of(self, tensor):
        """The largest collection on the way from a tensor to a name, and the name."""
        one, links, collection, seen = tensor, [], None, set()
        while id(one) not in self._names and id(one) not in seen and not isinstance(one, types.ModuleType):
            seen.add(id(one))
            ranked = sorted((self._link(one, parent) for parent in self._parents.get(id(one), ())), key=lambda entry: entry[0])
            if not ranked or ranked[0][1] is None:
                break
            _, parent, link = ranked[0]
            if link == "[]":
                if collection is None or len(parent) >= len(collection):
                    collection, links = parent, []
            elif link:
                links.append(link)
            one = parent
        # Links go from the inside out; those below the collection say what an entry is.
        name, what, file = self._names.get(id(one), ("", "", ""))
        if collection is None and isinstance(one, (list, dict, set, collections.deque)) and one is not tensor:
            collection = one
        if not name and isinstance(one, types.ModuleType):
            name, what, file = one.__name__, "a module", getattr(one, "__file__", None) or ""
        elif not name and one is not tensor:
            name, what = type(one).__name__, "an object"
            file = getattr(sys.modules.get(type(one).__module__), "__file__", None) or ""
        own_file = getattr(sys.modules.get(type(one).__module__), "__file__", None) or ""
        links = [link for link in reversed(links) if link.startswith(".")]
        path = name + "".join(links if len(links) <= _MOST_LINKS else ())  # a chain: each knows the one before it
        kind = next((kind.__name__ for kind in (collections.deque, list, dict, set) if isinstance(collection, kind)), "variable")
        bound = getattr(collection, "maxlen", None) or 0
        own_name, files, hooks = path.rpartition(".")[2], {file, own_file}, "_hooks" in path
        holder = {
            "name": path,
            "what": what,
            "container": "hooks" if hooks else kind,
            "length": len(collection) if collection is not None else 0,
            "bound": bound,
            "removes": not bound and not hooks and _stays_short(name, own_name, what, files, collection is not None),
            "kept_at": _kept_at(own_name, hooks, files | _main_file() if hooks else files) or _kept_at(name, False, files),
        }
        return (path, what, id(collection) if collection is not None else 0), holder

    def _link(self, one, parent):
        """(rank, parent, link): the lower the rank, the more the parent says to the user. A link "[]" is an entry of a collection."""
        if id(parent) in self._ours:
            return 9, None, ""
        if id(parent) in self._dictionaries:
            return 0, self._dictionaries[id(parent)], "." + _key_of(parent, one)
        named = id(parent) in self._names
        if isinstance(parent, dict):
            for owner in self._parents.get(id(parent), ()):
                if getattr(owner, "__dict__", None) is parent:
                    return 2, owner, "." + _key_of(parent, one)
            return 1 if named else 3, parent, "[]"
        if isinstance(parent, (list, set, collections.deque)):
            return 1 if named else 3, parent, "[]"
        if isinstance(parent, process.torch.Tensor):
            return 1 if named else 5, parent, ".grad" if one is parent.grad else ""
        own = getattr(parent, "__dict__", None)
        if isinstance(own, dict) and not isinstance(parent, type):
            for name, value in list(own.items()):
                if value is one:
                    return 2, parent, "." + name
        for kind in type(parent).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if getattr(parent, name, None) is one:
                    return 2, parent, "." + name
        return 4 if isinstance(parent, (tuple, types.CellType, types.FunctionType, types.MethodType)) else 6, parent, ""


def _running_frames():
    """Without our own: a list in a frame that the list holds is a cycle, and would keep what our frames know."""
    frames = []
    for frame in sys._current_frames().values():
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OURS):
                frames.append(frame)
            frame = frame.f_back
    return frames


def _frames():
    """All running frames, and the frames of the exception that ended the script."""
    frames = _running_frames()
    traceback = getattr(getattr(sys, "last_value", None), "__traceback__", None)
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames


def _main_file():
    return {getattr(sys.modules.get("__main__"), "__file__", None) or ""}


def _key_of(mapping, value):
    return next((str(key) for key, one in list(mapping.items()) if one is value), "?")


# ---- what the script does with a collection -----------------------------------------------------------------------------------------------

_REMOVALS = ("pop", "popleft", "popitem", "clear", "remove", "reset")
_ADDITIONS = ("append", "extend", "add", "insert", "update", "setdefault", "appendleft", "put")
_MOST_LINES = 4
_read = {}  # file -> its syntax tree, or None


def _trees(files):
    for path in sorted(filter(None, files)):
        if path not in _read:
            try:
                with open(path, encoding="utf-8") as source:
                    _read[path] = ast.parse(source.read())
            except (OSError, SyntaxError, ValueError):
                _read[path] = None
        if _read[path] is not None:
            yield path, _read[path]


def _nodes(files):
    return (node for _, tree in _trees(files) for node in ast.walk(tree))


def _stays_short(name, own_name, what, files, is_collection):
    if is_collection:
        return _removes(own_name, files) or _goes(name, what, files)
    return bool(own_name) and any(_is_cut(node, own_name) for node in _nodes(files))


def _removes(name, files):
    """Whether the script also takes entries out of the collection `name`, or adds to it only up to a length."""
    return bool(name) and any(_takes_from(node, name) or _adds_up_to_a_length(node, name) for node in _nodes(files))


def _goes(name, what, files):
    """Whether `name` belongs to a function that the script calls in a loop: it is gone when the function returns."""
    function = what.removeprefix("a variable of ").removesuffix("()")
    if not name or function in (what, "<module>"):
        return False
    return any(
        isinstance(node, ast.Call) and _is(node.func, function)
        for loop in _nodes(files)
        if isinstance(loop, (ast.For, ast.While))
        for node in ast.walk(loop)
    )


def _kept_at(name, hooks, files):
    """The lines that put something into the collection or variable `name`."""
    lines = []
    for path, tree in _trees(files) if name else ():
        found = {node.lineno for node in ast.walk(tree) if (_adds_hook(node) if hooks else _adds_to(node, name))}
        lines += [f"{path}:{number}" for number in sorted(found)]
    return lines[:_MOST_LINES]


def _is(node, name):
    return isinstance(node, ast.Name) and node.id == name or isinstance(node, ast.Attribute) and node.attr == name


def _under(node):
    """`history` of `history[key]["loss"]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _targets(node):
    if isinstance(node, ast.AugAssign):
        return [node.target]
    found = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        found += target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return found


def _takes_from(node, name):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _REMOVALS and _is(node.func.value, name)
    if isinstance(node, ast.Delete):
        return any(isinstance(target, ast.Subscript) and _is(target.value, name) for target in node.targets)
    for target in _targets(node) if isinstance(node, ast.Assign) else ():
        # A slice is replaced, or a shorter copy takes the name.
        if isinstance(target, ast.Subscript) and _is(target.value, name) and isinstance(target.slice, ast.Slice):
            return True
        if _is(target, name) and isinstance(node.value, ast.Subscript) and _is(node.value.value, name):
            return True
    return _is_cut(node, name)


def _is_cut(node, name):
    """`queue = torch.cat([queue, new])[-4096:]`."""
    value = node.value if isinstance(node, ast.Assign) else None
    cut = isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
    return cut and any(_is(target, name) for target in _targets(node)) and any(_is(one, name) for one in ast.walk(value.value))


def _adds_up_to_a_length(node, name):
    """`if len(items) < capacity: items.append(item)`: a buffer that is full some day."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    lengths = [
        side
        for side in (node.test.left, *node.test.comparators)
        if isinstance(side, ast.Call) and _is(side.func, "len") and side.args and _is(side.args[0], name)
    ]
    return bool(lengths) and any(_adds_to(inner, name) for statement in node.body for inner in ast.walk(statement))


def _adds_to(node, name):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _ADDITIONS and _is(_under(node.func.value), name)
    for target in _targets(node):
        if isinstance(target, ast.Subscript) and _is(_under(target), name):
            return True
        # `total += loss`, or `hidden = step(hidden)`: not where the name is set to something new.
        if _is(target, name) and not isinstance(node.value, (ast.Constant, ast.List, ast.Dict, ast.Set)):
            return isinstance(node, ast.AugAssign) or any(_is(inner, name) for inner in ast.walk(node.value))
    return False


def _adds_hook(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "register" in node.func.attr and "hook" in node.func.attr

"""What holds tensors of past steps: the collection or variable of the script, found by who refers to whom."""

import collections
import functools
import gc
import os
import sys
import types

from . import places, process, script_source

_MOST_NODES = 500_000  # of autograd, followed
_MOST_NAMED = 40  # survivors whose holders are looked for
_MOST_LEVELS, _MOST_WIDE = 14, 200  # from a tensor up to a name; objects of one level
_MOST_LINKS = 3  # of a name: trainer.metrics.values
_REGISTRIES = ("_parameters", "_buffers", "_modules")  # of nn.Module
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def find(kept, past_nodes):
    """What holds the blocks `kept` (step -> address -> bytes): collections and variables of the script, one dict each.

    `past_nodes`: the first and the last (not included) number of autograd nodes of past steps, or None."""
    torch = process.torch
    step_of = {address: step for step, blocks in kept.items() for address in blocks}
    like, chained, registries = {}, [], {}  # (shape, dtype) -> [(step, address, tensor)]; id of a registry -> its module
    with torch._C.DisableTorchFunction():
        for one in gc.get_objects():
            if not issubclass(type(one), torch.Tensor):
                if issubclass(type(one), torch.nn.Module):
                    registries.update({id(vars(one).get(name)): one for name in _REGISTRIES})
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
        old = _reaching_back(chained, past_nodes)
        sample = []
        for alike in like.values():
            alike.sort(key=lambda entry: entry[0])
            # In pairs: Adam's two moments of a parameter are alike, and made at two places.
            first, middle, last = 0, (len(alike) - 1) // 2, max(0, len(alike) - 2)
            chosen = sorted({number for one in (first, middle, last) for number in (one, min(one + 1, len(alike) - 1))})
            sample += [(alike[number][1], alike[number][2]) for number in chosen]
        sample = sample[:_MOST_NAMED]
        sampled = {id(tensor) for _, tensor in sample}
        deep = sorted(old.values(), key=lambda entry: -entry[1])
        sample += [(0, entry[0]) for entry in deep if id(entry[0]) not in sampled][:_MOST_NAMED]
        ours = {id(like), id(chained), id(registries), id(old), id(sample), id(sampled), id(deep)} | {
            id(entry) for entry in (*sample, *like.values(), *old.values())
        }
        ours |= {id(entry) for alike in like.values() for entry in alike}
        search = _Search(ours, registries)
        try:
            return search.holders(sample, old)
        finally:  # or a later search finds what this one kept
            search.forget()
            for ours_too in (like, chained, registries, old, sample, deep):
                ours_too.clear()


def _reaching_back(tensors, past_nodes):
    """Tensors with nodes of past steps in their graph: id -> (tensor, how many such nodes, its own node)."""
    if past_nodes is None:
        return {}
    begin, end = past_nodes
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

    def __init__(self, ours, registries):
        self._ours = ours  # ids of our own objects
        self._registries = registries
        self._names = {}  # id -> (name, what kind of name, file)
        self._dictionaries = {id(vars(module)): module for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)}
        self._parents = {}  # id -> the objects that refer to it
        ours |= {id(self._names), id(self._dictionaries), id(self._parents), id(vars(self))}
        torch_folder = os.path.dirname(process.torch.__file__) + os.sep
        for frame in _frames():
            code = frame.f_code
            if not code.co_flags & 1 or code.co_filename.startswith((_OURS, torch_folder, "<frozen")):
                continue  # names of modules and classes are in their dictionaries
            for name, value in places.variables_of(frame).items():
                self._names.setdefault(id(value), (name, f"a variable of {code.co_name}()", code.co_filename))
        main = sys.modules.get("__main__")
        for name, value in list(vars(main).items()) if main else ():
            if not name.startswith("__"):
                self._names.setdefault(id(value), (name, "a variable of the script", places.main_file()))

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

    def forget(self):
        for known in self._parents.values():
            known.clear()
        for table in (self._parents, self._names, self._dictionaries, self._registries):
            table.clear()

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
        one, links, collection, passed = tensor, [], None, {}
        while id(one) not in self._names and id(one) not in passed and not isinstance(one, types.ModuleType):
            passed[id(one)] = one
            self._ours.add(id(passed))
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
        if isinstance(one, type) and name:
            what = "a class of the script"
        if not name and isinstance(one, types.ModuleType):
            name, what, file = one.__name__, "a module", getattr(one, "__file__", None) or ""
        elif not name and one is not tensor:
            name, what, file = type(one).__name__, "an object", _file_of(one)
        links = [link for link in reversed(links) if link.startswith(".")]
        path = name + "".join(links if len(links) <= _MOST_LINKS else ())  # a chain: each knows the one before it
        holder = self._special([*passed.values(), one], path)
        if holder is None:
            bound = getattr(collection, "maxlen", None) or 0
            own_name, hooks = path.rpartition(".")[2], "_hooks" in path
            files = {file, *(_file_of(part) for part in (*passed.values(), one))} | ({places.main_file()} if hooks else set())
            adding = script_source.hook_lines(files) if hooks else script_source.adding_lines(own_name, files)
            holder = {
                "name": path,
                "what": what,
                "container": "hooks" if hooks else _kind_of(collection) or "variable",
                "length": len(collection) if collection is not None else 0,
                "bound": bound,
                "removes": not bound and not hooks and script_source.stays_short(name, own_name, what, files, collection is not None),
                "kept_at": adding or script_source.adding_lines(name, files),
            }
        return (holder["name"], holder["what"], id(collection) if collection is not None else 0), holder

    def _special(self, passed, path):
        """The holder where something else than a collection or variable of the script keeps the tensors; None: it does not."""
        facts = {"length": 0, "bound": 0, "removes": False}
        for one in passed:
            if isinstance(one, functools._lru_cache_wrapper):
                code = getattr(one.__wrapped__, "__code__", None)
                at = [f"{code.co_filename}:{code.co_firstlineno}"] if code else []
                info = one.cache_info()
                facts.update(name=one.__wrapped__.__qualname__, what="a function", container="lru_cache", kept_at=at)
                return {**facts, "length": info.currsize, "bound": info.maxsize or 0}
            if isinstance(one, types.TracebackType):
                files = {_file_of(part) for part in passed} | {places.main_file()}
                at = script_source.adding_lines(path.rpartition(".")[2], files)
                return {**facts, "name": path, "what": "exceptions", "container": "exceptions", "kept_at": at}
        return None

    def _link(self, one, parent):
        """(rank, parent, link): the lower the rank, the more the parent says to the user. A link "[]" is an entry of a collection."""
        if id(parent) in self._ours:
            return 9, None, ""
        if id(parent) in self._dictionaries:
            return 0, self._dictionaries[id(parent)], "." + _key_of(parent, one)
        if id(parent) in self._registries:
            module = self._registries[id(parent)]
            return 2, module, "[]" if _kind_of(module) else "." + _key_of(parent, one)
        named = id(parent) in self._names
        if isinstance(parent, dict):
            for owner in self._parents.get(id(parent), ()):
                if getattr(owner, "__dict__", None) is parent:
                    return 2, owner, "." + _key_of(parent, one)
                if isinstance(owner, type) and any(value is one for value in vars(owner).values()):
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


def _kind_of(collection):
    """The name of its kind, also of PyTorch's lists and dicts of modules; None: no collection."""
    nn = process.torch.nn
    lists, dicts = (list, nn.ModuleList, nn.ParameterList), (dict, nn.ModuleDict)
    kinds = {"deque": collections.deque, "list": lists, "dict": dicts, "set": set}
    return next((name for name, classes in kinds.items() if isinstance(collection, classes)), None)


def _file_of(one):
    """The file of an object's class, if it is the user's or a library's."""
    kind = one if isinstance(one, type) else type(one)
    module = sys.modules.get(getattr(kind, "__module__", None) or "")
    file = getattr(module, "__file__", None) or ""
    return "" if places.is_of_python(file) else file


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


def _key_of(mapping, value):
    return next((str(key) for key, one in list(mapping.items()) if one is value), "?")

"""Copies of the trained parameters that no optimizer trains: EMA, SWA, target networks. Looked for once, at the end of the capture."""

from . import process, steps, tensors

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")


def mark(modules, collections):
    """Looks at all live modules, lists and dicts. Reports modules with the class and shapes of a trained one (`copy.deepcopy`,
    AveragedModel, timm's ModelEma), and lists and dicts of tensors with the shapes of a trained model (diffusers' EMAModel)."""
    torch = process.torch
    trained = {id(p): p for optimizer in steps.counter.alive() for group in optimizer.param_groups for p in group["params"]}
    if not trained:
        return
    with torch._C.DisableTorchFunction():
        search = _Search(torch, trained, modules)
        entries = search.in_modules() + search.in_collections(collections)
    process.recorder.mark_tensors(entries)


class _Tree:
    """A module and all below it, read from its own dictionaries: its methods may be the user's, or gather shards."""

    def __init__(self, root):
        self.modules, self.parameters, self.buffers, self.state = [], {}, {}, []
        waiting, seen = [("", root)], set()
        while waiting:
            prefix, module = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            self.modules.append(module)
            for kind, found in ((module._parameters, self.parameters), (module._buffers, self.buffers)):
                for name, tensor in kind.items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        found[prefix + name] = tensor
                        self.state.append(tensor)
            waiting += [(f"{prefix}{name}.", child) for name, child in reversed(list(module._modules.items())) if child is not None]
        self.shapes = _shapes(self.parameters.values())

    def trains(self, trained):
        return any(id(parameter) in trained for parameter in self.parameters.values())


def _shapes(values):
    return tuple(tuple(tensor.shape) for tensor in values)


class _Search:
    def __init__(self, torch, trained, modules):
        self._torch, self._trained = torch, trained
        inner = {id(child) for module in modules for child in module._modules.values()}
        self._roots = [module for module in modules if id(module) not in inner]
        self._taken = set()  # addresses of tensors with another purpose, or of copies found already
        for optimizer in steps.counter.alive():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                state = optimizer.state.get(parameter) or {}
                for tensor in (parameter, parameter.grad, *(tensor for _, tensor in tensors.tensors_in(state, "", 1))):
                    self._taken.update(_addresses(tensor))
        self._kinds = set()  # (class, shapes) of trained modules that are larger than a layer
        self._wholes = {}  # number of tensors -> shapes: of a model's trained parameters, of all its parameters, of all its tensors
        for root in self._roots:
            tree = _Tree(root)
            own = [p for p in tree.parameters.values() if id(p) in trained]
            if not own:
                continue
            for module in tree.modules:
                below = tree if module is root else _Tree(module)
                layers = sum(1 for one in below.modules if one._parameters)
                if (layers > 1 or module is root) and below.trains(trained):
                    self._kinds.add((type(module), below.shapes))
            for whole in (own, tree.parameters.values(), tree.state):
                self._wholes.setdefault(len(whole), set()).add(_shapes(whole))

    def in_modules(self):
        found = []
        for root in self._roots:
            root_trains = _Tree(root).trains(self._trained)
            waiting = [(root, "")]
            while waiting:
                module, name = waiting.pop()
                tree = _Tree(module)
                trains = root_trains and tree.trains(self._trained)
                if tree.parameters and not trains and (type(module), tree.shapes) in self._kinds:
                    for inner, tensor in (*tree.parameters.items(), *tree.buffers.items()):
                        found += self._entries(tensor, f"{name}.{inner}" if name else inner)
                    continue
                # A frozen layer looks like the trained layers of the same model, and is no copy.
                if type(module).__name__ not in _CONTAINERS and (trains or not root_trains):
                    waiting += [(child, f"{name}.{key}" if name else key) for key, child in module._modules.items() if child is not None]
        return found

    def in_collections(self, collections):
        found = []
        for one in collections:
            if len(one) not in self._wholes:
                continue
            values = list(one if type(one) is list else one.values())
            if not all(isinstance(value, self._torch.Tensor) for value in values) or _shapes(values) not in self._wholes[len(values)]:
                continue
            for name, value in enumerate(one) if type(one) is list else one.items():
                found += self._entries(value, str(name))
        return found

    def _entries(self, tensor, name):
        if self._taken.intersection(_addresses(tensor)):
            return []
        self._taken.update(_addresses(tensor))
        return tensors.entries_of("parameter_copy", tensor, name)


def _addresses(tensor):
    return [address for _, address, *_ in tensors.storages(tensor)] if tensor is not None else []

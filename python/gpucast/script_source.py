"""What the script does with a name, read from its source: adds to it, takes out of it, works every few steps. Nothing is executed."""

import ast
import typing

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


def stays_short(name, own_name, what, files, is_collection):
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


def adding_lines(name, files):
    """The lines that put something into the collection or variable `name`; else those that set the attribute `name`."""
    return (_lines(lambda node: _adds_to(node, name), files) or _lines(lambda node: _sets(node, name), files)) if name else []


def hook_lines(files):
    return _lines(_adds_hook, files)


def _lines(wanted, files):
    lines = []
    for path, tree in _trees(files):
        found = {node.lineno for node in ast.walk(tree) if wanted(node)}
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


def _sets(node, name):
    """`self.name = tensor`, `self.register_buffer("name", tensor)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_buffer":
        return any(isinstance(argument, ast.Constant) and argument.value == name for argument in node.args[:1])
    attributes = [target for target in _targets(node) if isinstance(target, ast.Attribute) and target.attr == name]
    return bool(attributes) and not isinstance(node.value, (ast.Constant, ast.List, ast.Dict, ast.Set))


def _adds_hook(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "register" in node.func.attr and "hook" in node.func.attr


# ---- work every few steps ----------------------------------------------------------------------------------------------------------------

_ON_THE_HOST = ("item", "tolist", "cpu", "numpy", "float", "int", "len", "str", "time", "perf_counter")
_PRINTS = ("print", "format", "info", "debug", "warning", "log", "write", "add_scalar", "set_description", "set_postfix", "round")
_OF_NUMBERS = ("mean", "sum", "max", "min", "abs", "sqrt", "norm", "detach")
_STEPS = ("step", "zero_grad", "clip_grad_norm_", "clip_grad_value_", "unscale_", "parameters")


class Work(typing.NamedTuple):
    """Work after every few steps in the loop from `first_line` to `last_line`."""

    first_line: int
    last_line: int
    every: ast.expr  # steps
    most: int  # steps that any run waits for it


def work_every_few(file):
    """Blocks `if step % every == 0:` in a file's loops, but those that only print or step, and ends of loops `for ... in range(every)`."""
    found = []
    for _, tree in _trees([file]):
        for parent in ast.walk(tree):
            if isinstance(parent, (ast.For, ast.While)):
                found += [_block(parent, node) for node in ast.walk(parent) if isinstance(node, ast.If)]
            if isinstance(parent, (ast.For, ast.While, ast.FunctionDef)):
                found += [_short_loop(parent, node) for node in parent.body if isinstance(node, ast.For)]
    return [work for work in found if work is not None]


_ADDS, _WORKS = 10, 5  # steps that any run waits for work that keeps something, and for other work


def _block(loop, node):
    every = next((inner.right for inner in ast.walk(node.test) if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod)), None)
    body = [inner for statement in node.body for inner in ast.walk(statement)]
    adds = any(_adds_something(inner) for inner in body)
    works = any(_called(inner) not in (None, *_ON_THE_HOST, *_PRINTS, *_STEPS, *_ADDITIONS, *_OF_NUMBERS) for inner in body)
    if every is None or not (adds or works):
        return None
    return Work(loop.lineno, loop.end_lineno, every, _ADDS if adds else _WORKS)


def _short_loop(parent, loop):
    """A loop inside another one, or in a function that a loop may call."""
    if _called(loop.iter) != "range" or not loop.iter.args:
        return None
    inside = set(map(id, ast.walk(loop)))
    adds = any(_adds_something(node) for node in ast.walk(parent) if id(node) not in inside)
    return Work(loop.lineno, loop.end_lineno, loop.iter.args[:2][-1], _ADDS if adds else 0)


def _called(node):
    if not isinstance(node, ast.Call):
        return None
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _adds_something(node):
    if _called(node) in _ADDITIONS and isinstance(node.func, ast.Attribute):
        values = node.args
    elif isinstance(node, (ast.Assign, ast.AugAssign)) and (
        isinstance(node, ast.AugAssign) or any(isinstance(target, ast.Subscript) for target in node.targets)
    ):
        values = [node.value]
    else:
        return False
    return any(
        not isinstance(value, ast.Constant) and not any(_called(inner) in _ON_THE_HOST for inner in ast.walk(value)) for value in values
    )

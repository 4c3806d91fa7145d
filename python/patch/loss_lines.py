"""A language model's loss in chunks of tokens: the call of cross_entropy, and the line that makes its logits."""

import ast

from optimizer_lines import add_keyword, keywords
from patch_job import is_name
from source import ByHand

_VIEWS = ("view", "reshape", "flatten", "contiguous", "float")
_SETTINGS = ("target", "ignore_index", "reduction", "label_smoothing")


def chunked_loss(job, what_if, argument):
    losses, heads = job.of_kind(what_if), job.of_kind("head")
    if len(losses) != 1 or len(heads) != 1:
        raise ByHand(f"{len(losses)} lines compute the loss, and {len(heads)} the logits")
    source, loss = job.call(losses[0])
    of_head, head = job.call(heads[0])
    if of_head is not source or source.scope_of(head) is not source.scope_of(loss):
        raise ByHand("the logits and their loss are not computed in one function")
    if len(head.args) != 1 or head.keywords or isinstance(head.args[0], ast.Starred) or not is_name(head.func):
        raise ByHand(f"line {head.lineno} has another form than logits = head(hidden)")
    if not loss.args or set(keywords(loss)) - set(_SETTINGS) or len(loss.args) > 2:
        raise ByHand(f"line {loss.lineno} has another form than cross_entropy(logits, targets)")
    base, views = _views_of(loss.args[0])
    inputs = None if base is head else _rename_logits(source, head, loss, base)
    _take_out(source, head)
    upcast = False
    for view in views:
        if isinstance(view, ast.Call) and view.func.attr == "float":
            _remove_call(source, view)
            upcast = True
        if isinstance(view, ast.Call) and view.func.attr in ("view", "reshape"):
            _last_size(source, view, inputs, source.text_of(head.args[0]))
    _call_helper(source, loss, f"head={source.text_of(head.func)}, chunks={argument}" + (", upcast=True" if upcast else ""))


def _views_of(logits):
    """(what they are views of, the calls and slices in between)"""
    views = []
    while True:
        if isinstance(logits, ast.Call) and isinstance(logits.func, ast.Attribute) and logits.func.attr in _VIEWS:
            views.append(logits)
            logits = logits.func.value
        elif isinstance(logits, ast.Subscript):
            views.append(logits)
            logits = logits.value
        else:
            return logits, views


def _rename_logits(source, head, loss, base):
    """`logits` is what comes into the head from now on. Returns its new name."""
    statement = source.statement_of(head)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Name) or statement.value is not head or not isinstance(base, ast.Name) or base.id != target.id:
        raise ByHand(f"line {head.lineno} has another form than logits = head(hidden)")
    scope, inside = source.scope_of(head), set(ast.walk(loss.args[0]))
    names = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == target.id]
    for node in names:
        if node is not target and node not in inside:
            raise ByHand(f"line {node.lineno} uses {target.id} too")
    inputs = source.free_name("hidden", "hidden_states", "features")
    for node in names:
        source.replace(node, inputs)
    return inputs


def _take_out(source, head):
    """head(hidden) -> hidden"""
    (value,) = head.args
    if head.lineno != value.lineno or head.end_lineno != value.end_lineno:
        raise ByHand(f"line {head.lineno} goes on in the next line")
    source.remove(head.lineno, head.col_offset, value.col_offset)
    source.remove(head.end_lineno, value.end_col_offset, head.end_col_offset)


def _remove_call(source, call):
    """x.float() -> x"""
    if call.args or call.keywords or call.func.value.end_lineno != call.end_lineno:
        raise ByHand(f"line {call.lineno} has another form than logits.float()")
    source.remove(call.end_lineno, call.func.value.end_col_offset, call.end_col_offset)


def _last_size(source, view, inputs, text):
    """The width of the logits becomes the width of the head's input. A size that asks the tensor itself has it already."""
    sizes = view.args[0].elts if len(view.args) == 1 and isinstance(view.args[0], (ast.Tuple, ast.List)) else view.args
    last = sizes[-1] if sizes else None
    if last is None or any(isinstance(size, ast.Starred) for size in sizes):
        raise ByHand(f"line {view.lineno} does not name the logits' sizes")
    asks_itself = any(isinstance(node, ast.Name) and _asks(node, view) for node in ast.walk(last))
    if not asks_itself:
        if inputs is None and not text.isidentifier():
            raise ByHand(f"line {view.lineno} needs the width of {text}")
        source.replace(last, f"{inputs or text}.shape[-1]")


def _asks(name, view):
    base, _ = _views_of(view)
    return isinstance(base, ast.Name) and name.id == base.id


def _call_helper(source, loss, more):
    torch = source.torch()
    source.add_import("torch.utils.checkpoint")
    name = source.free_name("cross_entropy_in_chunks")
    source.replace(loss.func, name)
    add_keyword(source, loss, more)
    source.add_function([line.format(name=name, torch=torch) for line in _HELPER.strip("\n").split("\n")])


_HELPER = '''
def {name}(hidden, target, head, chunks, upcast=False, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The logits and their cross entropy for one chunk of tokens at a time, computed again in backward: all logits are never there at once."""

    def loss_of(hidden, target):
        logits = head(hidden)
        if upcast:
            logits = logits.float()
        settings = dict(ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing)
        return {torch}.nn.functional.cross_entropy(logits, target, **settings)

    parts = zip(hidden.chunk(chunks), target.chunk(chunks))
    total = sum({torch}.utils.checkpoint.checkpoint(loss_of, *part, use_reentrant=False) for part in parts)
    return total if reduction == "sum" else total / (target != ignore_index).sum()
'''

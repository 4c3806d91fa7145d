"""Changes of optimizers: another call, or lines after it."""

import ast

from patch_job import called, is_name
from source import ByHand

_SWITCHES = {
    "fused": ("fused", True, "foreach", None),
    "foreach": ("foreach", True, "fused", False),
    "no-foreach": ("foreach", False, "fused", False),
}


def switches(job, what_if, argument):
    name, value, other, other_value = _SWITCHES[what_if]
    for _, source, call, given in _calls(job, what_if):
        if other in given:
            source.replace(given[other].value, str(other_value))
        if name in given:
            source.replace(given[name].value, str(value))
        else:
            add_keyword(source, call, f"{name}={value}")


def _calls(job, what_if):
    """(note, source, call, its keywords) for each optimizer that the what-if changed."""
    notes = job.of_kind(what_if)
    if not notes:
        raise ByHand("no line of the script makes the optimizer")
    for note in notes:
        source, call = job.call(note)
        yield note, source, call, keywords(call)


def set_to_none(job, what_if, argument):
    for note in job.of_kind(what_if):
        source, call = job.call(note, ["zero_grad"])
        given = keywords(call)
        value = given["set_to_none"].value if "set_to_none" in given else call.args[0] if len(call.args) == 1 else None
        if value is None:
            raise ByHand(f"line {call.lineno} does not say set_to_none")
        source.replace(value, "True")
    if not job.of_kind(what_if):
        raise ByHand("no line of the script calls zero_grad")


def add_keyword(source, call, text):
    last = max(
        [*call.args, *(keyword.value for keyword in call.keywords)], key=lambda node: (node.end_lineno, node.end_col_offset), default=None
    )
    if last is None:
        source.insert(call.end_lineno, call.end_col_offset - 1, text)
    elif isinstance(last, ast.GeneratorExp) and len(call.args) == 1 and last.end_col_offset == call.end_col_offset:
        source.around(last, "(", f", {text})")  # its parentheses are the call's
    else:
        source.insert(last.end_lineno, _after_parentheses(source, last, call), f", {text}")


def _after_parentheses(source, node, call):
    """The column after a value, which may be in parentheses of its own."""
    line = source.lines[node.end_lineno - 1].encode()
    end = call.end_col_offset - 1 if node.end_lineno == call.end_lineno else len(line)
    column, text = node.end_col_offset, line[node.end_col_offset : end]
    while text.lstrip()[:1] == b")":
        column += text.index(b")") + 1
        text = line[column:end]
    return column


def keywords(call):
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(value, ast.Starred) for value in call.args):
        raise ByHand(f"line {call.lineno} hands over arguments with *")
    return {keyword.arg: keyword for keyword in call.keywords}


# ---- another optimizer -----------------------------------------------------------------------------------------------------------


def other_optimizer(job, what_if, argument):
    for note, source, call, given in _calls(job, what_if):
        for place, value in enumerate(call.args[1:], 1):
            if note["parameters"][place] not in note["taken"]:
                raise ByHand(f"line {call.lineno} hands over {note['parameters'][place]}, which {note['other']} does not have")
            source.insert(value.lineno, value.col_offset, f"{note['parameters'][place]}=")
        for name, keyword in given.items():
            if name not in note["taken"]:
                _remove(source, call, keyword)
        if what_if == "8bit-optimizer":
            source.add_import("bitsandbytes")
            source.replace(call.func, "bitsandbytes.optim.AdamW8bit")
        else:
            source.replace(call.func, f"{source.torch()}.optim.Adafactor")


def _remove(source, call, keyword):
    before = [
        value for value in [*call.args, *call.keywords] if (value.end_lineno, value.end_col_offset) < (keyword.lineno, keyword.col_offset)
    ]
    last = max(before, key=lambda node: (node.end_lineno, node.end_col_offset), default=None)
    if last is None or last.end_lineno != keyword.lineno or keyword.end_lineno != keyword.lineno:
        raise ByHand(f"line {keyword.lineno}: {keyword.arg} must go, and the line has more than it")
    source.remove(keyword.lineno, last.end_col_offset, keyword.end_col_offset)


# ---- an optimizer for each parameter ---------------------------------------------------------------------------------------------


def in_backward(job, what_if, argument):
    _after_each(
        job, "step_in_backward", _IN_BACKWARD, "{name}({optimizer})", "# Each parameter steps in backward, and its gradient is dropped."
    )


def offload(job, what_if, argument):
    _after_each(
        job,
        "step_with_state_on_the_host",
        _OFFLOADED,
        "{optimizer}.step = {name}({optimizer})",
        "# The optimizer's state is on the card only while its parameter steps.",
    )


def _after_each(job, wanted, function, line, comment):
    notes = job.of_kind("optimizer")
    if not notes:
        raise ByHand("no line of the script makes the optimizer")
    for note in notes:
        source, statement, optimizer = _named(job, note)
        name = source.free_name(wanted)
        source.add_function([text.format(name=name, torch=source.torch()) for text in function.strip("\n").split("\n")])
        source.lines_after(statement, [comment, line.format(name=name, optimizer=optimizer)])


def _named(job, note):
    """(source, statement, name): where the optimizer gets a name."""
    for depth, site in enumerate(note["sites"]):
        source = job.source(site["file"])
        statement = source.statement_at(site)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not is_name(statement.targets[0]):
            continue
        name = source.text_of(statement.targets[0])
        certain = (depth == 0 and note["direct"] and statement.value is source.call_at(site, called(note))) or [name, ""] in site["names"]
        if certain:
            return source, statement, name
    raise ByHand("no line of the script gives the optimizer a name")


_IN_BACKWARD = '''
def {name}(optimizer):
    """An optimizer for each parameter, which steps as soon as the gradient is complete; optimizer.step() then finds no gradients."""
    own = {{}}

    def step(parameter):
        one, group = own[parameter]
        one.param_groups[0]["lr"] = group["lr"]
        one.step()
        one.zero_grad()

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                own[parameter] = type(optimizer)([{{**group, "params": [parameter]}}], lr=group["lr"]), group
                parameter.register_post_accumulate_grad_hook(step)
'''

_OFFLOADED = '''
def {name}(optimizer):
    """An optimizer for each parameter, whose state is in pinned memory of the host between its steps."""
    own = {{}}

    def step_one(parameter, group):
        if parameter not in own:
            own[parameter] = type(optimizer)([{{**group, "params": [parameter]}}], lr=group["lr"]), {{}}
        one, host = own[parameter]
        state = one.state[parameter]
        for name, kept in host.items():
            state[name] = kept.to(parameter.device, non_blocking=True)
        one.param_groups[0]["lr"] = group["lr"]
        one.step()
        for name, value in state.items():
            if isinstance(value, {torch}.Tensor) and value.dim() > 0:
                if name not in host:
                    host[name] = {torch}.empty_like(value, device="cpu", pin_memory=True)
                state[name] = host[name].copy_(value, non_blocking=True)

    def step(closure=None):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    step_one(parameter, group)

    return step
'''

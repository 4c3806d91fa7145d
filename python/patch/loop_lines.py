"""Changes of the training loop: a smaller batch, and the gradients of several parts for each step of the optimizer."""

import ast

from optimizer_lines import keywords
from source import ByHand


def half_batch(job, what_if, argument):
    _divide_batch(job, 2)


def micro_batch(job, what_if, argument):
    parts = int(argument)
    if not job.details.get(what_if, {}).get("by_command"):
        _divide_batch(job, parts)
    notes = job.of_kind("backward")
    if len(notes) != 1:
        raise ByHand(f"{len(notes) or 'no'} lines call backward()")
    source, call = job.call(notes[0], ["backward"])
    backward = source.statement_of(call)
    loops = source.loops_around(backward)
    if not loops:
        raise ByHand(f"the loop around line {backward.lineno}, {source.text_of(backward)}, is in another function")
    _divide_loss(source, call, parts)
    step_notes = _step_notes(job)
    steps = [_statement(job, source, backward, note) for note in step_notes]
    statements = source.siblings(backward)
    for note, step in zip(step_notes, steps):
        after = step and source.ancestor_in(statements, step)
        if after is None or statements.index(after) <= statements.index(backward):
            raise ByHand("no step of the optimizer follows backward() in the same block")
        if note["count"] != notes[0]["count"]:
            raise ByHand("the script adds up the gradients of several backward passes already")
    others = [_statement(job, source, backward, note) for note in job.of_kind("once_a_step")]
    gated = [statement for statement in (*steps, *others) if statement is not None and source.loops_around(statement)[:1] == loops[:1]]
    if not steps:
        raise ByHand("no line of the script calls the optimizer's step")
    counter = source.free_name("micro_batch")
    source.lines_before(loops[-1], [f"{counter} = 0  # the optimizer steps after each {parts} of them"])
    source.lines_after(backward, [f"{counter} += 1"])
    for first, last in _runs(source, gated):
        if isinstance(first, ast.Assign):
            source.insert(
                first.value.end_lineno, first.value.end_col_offset, f" if {counter} % {parts} == 0 else {source.torch()}.zeros(())"
            )
        else:
            source.block(first, last, f"if {counter} % {parts} == 0:")


def _step_notes(job):
    """A GradScaler's step calls the optimizer's."""
    of_scalers = job.of_kind("scaler_step")
    sites = [note["sites"][0] for note in of_scalers]
    return of_scalers + [note for note in job.of_kind("step") if note["sites"][0] not in sites]


def _divide_batch(job, parts):
    notes = job.of_kind("batch_size")
    if job.of_kind("batch_sampler") or not notes:
        raise ByHand("no DataLoader of the script has a batch_size of its own")
    for note in notes:
        source, call = job.call(note)
        given = keywords(call)
        value = given["batch_size"].value if "batch_size" in given else call.args[1] if len(call.args) > 1 else None
        if value is None:
            raise ByHand(f"line {call.lineno} names no batch_size")
        if isinstance(value, ast.Constant):
            source.replace(value, str(value.value // parts))
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            source.insert(value.end_lineno, value.end_col_offset, f" // {parts}")
        else:
            source.around(value, "(", f") // {parts}")


def _divide_loss(source, call, parts):
    """(loss / parts).backward()"""
    loss = call.func.value if isinstance(call.func, ast.Attribute) else None
    if loss is None or call.args or any(keyword.arg in ("gradient", None) for keyword in call.keywords):
        raise ByHand(f"line {call.lineno} has another form than loss.backward()")
    simple = isinstance(loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    source.around(loss, "(", f" / {parts})" if simple else f") / {parts}")  # else the parentheses are there


def _statement(job, source, backward, note):
    """In the function that calls backward(); None: it is elsewhere, such as before the loop."""
    site = note["sites"][0]
    same_file = site["file"] == source.path
    statement = source.statement_at(site) if same_file else None
    if statement is not None and source.scope_of(statement) is source.scope_of(backward):
        value = getattr(statement, "value", None)
        simple = isinstance(statement, ast.Expr) or (isinstance(statement, ast.Assign) and isinstance(value, ast.Call))
        if not source.loops_around(statement):
            return None
        if not simple or (note["kind"] != "once_a_step" and not isinstance(statement, ast.Expr)):
            raise ByHand(f"line {statement.lineno} must run once for the whole batch, and does more than that")
        return statement
    if note["kind"] != "once_a_step" or any(_in_loop_of(job, source, backward, each) for each in note["sites"][1:]):
        raise ByHand(
            f"line {site['line']} of {site['function']}() must run once for the whole batch, and is in another function than backward()"
        )
    return None


def _in_loop_of(job, source, backward, site):
    if site["file"] != source.path:
        return False
    statement = source.statement_at(site)
    return (
        source.scope_of(statement) is source.scope_of(backward) and source.loops_around(statement)[:1] == source.loops_around(backward)[:1]
    )


def _runs(source, statements):
    """(first, last) of statements in a row."""
    runs = []
    for statement in sorted(set(statements), key=lambda node: node.lineno):
        siblings = source.siblings(statement)
        place = siblings.index(statement)
        previous = runs[-1][1] if runs else None
        if place and siblings[place - 1] is previous and isinstance(statement, ast.Expr) and isinstance(previous, ast.Expr):
            runs[-1][1] = statement
        else:
            runs.append([statement, statement])
    return runs

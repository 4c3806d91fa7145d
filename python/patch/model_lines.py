"""Changes of the model: lines after it is made, before its optimizer is made, or around its forward."""

import ast
import os

from patch_job import is_name
from source import ByHand

_MOST_COLUMNS = 100


class ModelPlace:
    """Where in the user's files the model has a name and is complete."""

    def __init__(self, source, name, path, last_binding, first_use=None):
        self.source = source
        self.name = name  # "model", "self.model"
        self.path = path  # in the model that runs; "": the same, "module": what a wrapper holds
        self.last_binding = last_binding  # the statement that gives it this name
        self.first_use = first_use  # the statement of its forward, or the loop around that; None: in another function

    def insert_early(self, lines):
        """After the model has its name; in the list of statements that the training is in."""
        if self.first_use is None:
            self.source.lines_after(self.last_binding, lines)
            return
        statements = self.source.siblings(self.first_use)
        made = self.source.ancestor_in(statements, self.last_binding)
        if made is None or made is self.first_use:
            self.source.lines_before(self.first_use, lines)
        else:
            self.source.lines_after(made, lines)


def model_place(job, model=None, paths=("",)):
    """Of the model with this number that has the modules `paths`. The outermost function first: it runs once."""
    why = "no line of the script calls the model"
    for note in job.of_kind("forward"):
        if model not in (None, note["about"]):
            continue
        for depth in reversed(range(len(note["sites"]))):
            site = note["sites"][depth]
            try:
                source = job.source(site["file"])
                names = [tuple(entry) for entry in site["names"]]
                if depth == 0 and note["direct"] and not names:
                    call = source.call_at(site)
                    names = [(source.text_of(call.func), "")] if is_name(call.func) else []
                for name, path in names:
                    if all(f"{each}.".startswith(f"{path}." if path else "") for each in paths):
                        return _named_here(job, source, site, name, path, note["sites"][depth + 1 :])
                where = f"{site['function']}() of {os.path.basename(site['file'])}" if site["function"] != "<module>" else "the script"
                why = f"the model has no name in {where}" if not names else why
            except ByHand as reason:
                why = str(reason)
    raise ByHand(why)


def _named_here(job, source, site, name, path, outer_sites):
    statement = source.statement_at(site)
    scope = source.scope_of(statement)
    bindings = [source.statement_of(node) for node in source.bindings(scope, name)]
    function = f"{site['function']}() of {os.path.basename(site['file'])}"
    if not bindings and name.startswith("self."):
        return _named_in_class(source, scope, name, path)
    if not bindings:
        raise ByHand(f"{function} gets the model from elsewhere")
    if not job.runs_once(outer_sites):
        raise ByHand(f"{function} is called in a loop")
    loops = source.loops_around(statement)
    first_use = loops[-1] if loops and isinstance(loops[-1], ast.stmt) else statement
    # The model may be made and used in one list of statements only: a branch may not be taken.
    if any(binding.end_lineno >= first_use.lineno for binding in bindings):
        raise ByHand(f"{name} gets another value where the training runs")
    return ModelPlace(source, name, path, max(bindings, key=lambda binding: binding.end_lineno), first_use)


def _named_in_class(source, method, name, path):
    """An attribute that one statement of the class's constructor makes."""
    owner = source.scope_of(method)
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)] if isinstance(owner, ast.ClassDef) else []
    bindings = [(each.name, source.statement_of(node)) for each in methods for node in source.bindings(each, name)]
    if len(bindings) != 1 or bindings[0][0] != "__init__" or source.loops_around(bindings[0][1]):
        raise ByHand(f"{name} gets its value in {len(bindings)} lines of the class")
    return ModelPlace(source, name, path, bindings[0][1])


# ---- recomputation ---------------------------------------------------------------------------------------------------------------


def checkpoint(job, what_if, argument):
    facts = job.details.get(what_if)
    if not facts:
        raise ByHand("its modules are not all parts of one model")
    place = model_place(job, facts["model"], facts["paths"])
    source = place.source
    source.add_import("torch.utils.checkpoint")
    block = source.free_name("block", "layer", "module", "recomputed_module")
    paths = [path[len(place.path) + 1 :] if place.path else path for path in facts["paths"]]
    kind = argument.partition("=")[0]
    if facts["is_every_one"]:
        head = [f"for {block} in {place.name}.modules():", f'    if type({block}).__name__ == "{kind}":']
        indent = "        "
    else:
        head, indent = [*_for_each(source, paths), f"    {block} = {place.name}.get_submodule({_path_name(source)})"], "    "
    which = f"every {kind}" if facts["is_every_one"] else f"{len(paths)} module{'s' if len(paths) > 1 else ''} ({kind})"
    comment = f"# Recompute {which} in backward instead of keeping activations."
    if facts["caches"]:
        recomputed = source.free_name("recomputed")
        source.add_function(_without_caches(recomputed, facts["caches"]))
        place.insert_early([comment, *head, f"{indent}{block}.forward = {recomputed}({block}.forward)"])
        return
    source.add_import("functools")
    recompute = f"functools.partial(torch.utils.checkpoint.checkpoint, {block}.forward, use_reentrant=False)"
    place.insert_early([comment, *head, f"{indent}{block}.forward = {recompute}"])


def _path_name(source):
    return source.free_name("path", "block_path", "module_path")


def _for_each(source, paths):
    """The head of a loop over paths of modules."""
    path = _path_name(source)
    before = {each.rpartition(".")[0] for each in paths}
    numbers = sorted(int(last) for last in (each.rpartition(".")[2] for each in paths) if last.isdigit())
    if len(before) == 1 and numbers and numbers == list(range(numbers[0], numbers[0] + len(paths))) and len(paths) > 1:
        prefix = before.pop()
        begin = f"{numbers[0]}, " if numbers[0] else ""
        return [f'for {path} in [f"{prefix + "." if prefix else ""}{{i}}" for i in range({begin}{numbers[-1] + 1})]:']
    on_one_line = f"for {path} in [{', '.join(map(_quoted, paths))}]:"
    if len(on_one_line) <= _MOST_COLUMNS:
        return [on_one_line]
    lines, line = [f"for {path} in ["], "    "
    for each in paths:
        if len(line) + len(each) + 4 > _MOST_COLUMNS:
            lines.append(line.rstrip())
            line = "    "
        line += f'"{each}", '
    return [*lines, line.rstrip(), "]:"]


def _quoted(path):
    return f'"{path}"'


def _without_caches(name, caches):
    return [
        f"def {name}(forward):",
        '    """The same, recomputed in backward. Without its cache: a recomputation would fill it a second time."""',
        "",
        "    def call(*args, **kwargs):",
        *(f'        kwargs["{cache}"] = None' for cache in caches),
        "        return torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False, **kwargs)",
        "",
        "    return call",
    ]


# ---- precision -------------------------------------------------------------------------------------------------------------------


def bf16(job, what_if, argument):
    """The statements from the model's forward up to the backward of its loss, under autocast."""
    backwards = job.of_kind("backward")
    if len(backwards) != 1:
        raise ByHand(f"{len(backwards) or 'no'} lines call backward()")
    site = backwards[0]["sites"][0]
    source = job.source(site["file"])
    backward = source.statement_at(site)
    statements = source.siblings(backward)
    forwards = [_in_list(job, source, statements, note, site) for note in job.of_kind("forward")]
    if not forwards:
        raise ByHand("no line of the script calls the model")
    first = min(map(statements.index, forwards))
    if max(map(statements.index, forwards)) >= statements.index(backward):
        raise ByHand(f"line {backward.lineno} has or follows backward(), and calls the model")
    source.block(
        statements[first],
        statements[statements.index(backward) - 1],
        f'with {source.torch()}.autocast("cuda", dtype={source.torch()}.bfloat16):',
    )


def _in_list(job, source, statements, note, site):
    """The statement of the list that calls the model, itself or through other functions."""
    for each in note["sites"]:
        if not note["direct"] and each["line"] == site["line"]:
            raise ByHand(f"a library calls the model and backward(), from line {each['line']} of {os.path.basename(each['file'])}")
        if (each["file"], each["first_line"]) == (site["file"], site["first_line"]):
            statement = source.ancestor_in(statements, source.statement_at(each))
            if statement is not None:
                return statement
    line = note["sites"][0]
    raise ByHand(f"line {line['line']} of {os.path.basename(line['file'])} calls the model, in another block than backward()")


def bf16_weights(job, what_if, argument):
    models = {note["about"] for note in job.of_kind("forward")}
    if len(models) != 1:
        raise ByHand(f"the script has {len(models)} models")
    place = model_place(job)
    source, torch = place.source, place.source.torch()
    lines = ["# The weights in bfloat16, before the optimizer is made.", f"{place.name}.to({torch}.bfloat16)"]
    if job.details.get(what_if, {}).get("casts_inputs"):
        cast = source.free_name("inputs_to_bfloat16")
        source.add_function(_cast(cast, torch))
        lines.append(f"{place.name}.register_forward_pre_hook({cast}, with_kwargs=True)")
    statement = _first_optimizer(job, place)
    source.lines_before(statement, lines)


def _first_optimizer(job, place):
    """The statement during which the first optimizer is made, in the function in which the model has its name."""
    source, made = place.source, place.last_binding
    for site in (site for note in job.of_kind("optimizer")[:1] for site in note["sites"]):
        if site["file"] == source.path:
            statement = source.statement_at(site)
            after = statement.lineno > made.end_lineno and source.scope_of(statement) is source.scope_of(made)
            if after and not source.loops_around(statement):
                return statement
    raise ByHand("the optimizer is not made where the model has its name")


def _cast(name, torch):
    return [
        f"def {name}(module, args, kwargs):",
        "    def cast(value):",
        f"        return value.to({torch}.bfloat16) if isinstance(value, {torch}.Tensor) and value.dtype == {torch}.float32 else value",
        "",
        "    return tuple(cast(value) for value in args), {name: cast(value) for name, value in kwargs.items()}",
    ]


# ---- compiled code ---------------------------------------------------------------------------------------------------------------


def compiled(job, what_if, argument):
    notes = job.of_kind(what_if)
    for number in dict.fromkeys(note["about"] for note in notes):
        place = model_place(job, number)
        if place.path:
            raise ByHand(f"only a part of the model has a name, {place.name}")
        place.insert_early([f"{place.name}.compile()"])
    if not notes:
        raise ByHand("no line of the script calls the model")


# ---- attention -------------------------------------------------------------------------------------------------------------------


def attention(job, what_if, argument):
    source = job.source(job.main)
    torch = source.torch()
    switches = [f"{torch}.backends.cuda.{name}({on})" for name, on in job.details[what_if].items()]
    source.after_imports([f"# Attention has the {argument} kernel only.", *switches])

"""A file of Python source with edits: lines before and after statements, statements in a new block, text inside a line."""

import ast
import copy
import difflib
import hashlib
import io
import tokenize
from collections import defaultdict
from pathlib import Path

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)


class ByHand(Exception):
    """Why a change cannot be placed with certainty."""


class Source:
    NO_EDITS = defaultdict(list), defaultdict(list), defaultdict(list), []

    def __init__(self, path):
        data = Path(path).read_bytes()
        self.path, self.hash = path, hashlib.sha256(data).hexdigest()
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        self.text = data.decode(self.encoding)
        self.tree = ast.parse(self.text)
        self.lines = self.text.split("\n")
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._words = {getattr(node, name, None) for node in ast.walk(self.tree) for name in ("id", "attr", "arg", "name", "asname")}
        self._inside = defaultdict(list)  # line -> [(first column, last column, text)], columns in bytes
        self._before, self._after = defaultdict(list), defaultdict(list)  # line -> [text of a line]
        self._blocks = []  # (first line, last line, header)

    # ---- finding -----------------------------------------------------------------------------------------------------------------

    def call_at(self, site, names=None):
        """The call that ran there. `names`: of functions; Python before 3.11 records only the line."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        if _has_columns(site):
            found = [call for call in calls if list(_span(call)) == [site["span"][at] for at in (0, 2, 1, 3)]]
        else:
            on_line = [call for call in calls if call.lineno <= site["line"] <= call.end_lineno]
            found = [call for call in on_line if names is None or called(call) in names]
        if len(found) != 1:
            raise ByHand(f"line {site['line']} has no single call that could be meant")
        return found[0]

    def statement_at(self, site):
        """The innermost statement that ran there."""
        line = site["line"]
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno]
        if _has_columns(site):
            first, last, begin, end = site["span"]
            found = [node for node in found if _contains(_span(node), (first, begin, last, end))]
        if not found:
            raise ByHand(f"line {line} is no statement")
        return max(found, key=lambda node: (_span(node)[:2], [-part for part in _span(node)[2:]]))

    def above(self, node):
        """The node's ancestors, the nearest first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statement_of(self, node):
        return node if isinstance(node, ast.stmt) else next(above for above in self.above(node) if isinstance(above, ast.stmt))

    def scope_of(self, node):
        return next((above for above in self.above(node) if isinstance(above, _SCOPES)), self.tree)

    def loops_around(self, node):
        """In its function, the nearest first."""
        loops = []
        for above in self.above(node):
            if isinstance(above, _SCOPES):
                break
            if isinstance(above, _LOOPS):
                loops.append(above)
        return loops

    def siblings(self, statement):
        """The list of statements that it is in."""
        parent = self._parents[statement]
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and statement in value:
                return value
        raise ByHand(f"line {statement.lineno} is in no block")

    def ancestor_in(self, statements, node):
        """The statement of the list that is or contains `node`; None: none does."""
        return next((one for one in (node, *self.above(node)) if one in statements), None)

    def text_of(self, node):
        return ast.get_source_segment(self.text, node)

    def bindings(self, scope, name):
        """Nodes that give `name` ("model", "self.model") a value in this scope, without functions inside it."""
        found, waiting = [], list(ast.iter_child_nodes(scope))
        while waiting:
            node = waiting.pop()
            stored = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del))
            if stored and ast.unparse(node) == name:
                found.append(node)
            if isinstance(node, (ast.Import, ast.ImportFrom)) and name in [alias.asname or alias.name for alias in node.names]:
                found.append(node)
            if not isinstance(node, _SCOPES):
                waiting.extend(ast.iter_child_nodes(node))
        return found

    def free_name(self, *wanted):
        """The first of these names that the file does not use."""
        name = next((name for name in wanted if name not in self._words), wanted[0])
        while name in self._words:
            name += "_"
        return name

    # ---- editing -----------------------------------------------------------------------------------------------------------------

    def state(self):
        """What `restore` needs: a change that fails halfway leaves nothing."""
        return copy.deepcopy((self._inside, self._before, self._after, self._blocks))

    def restore(self, state):
        self._inside, self._before, self._after, self._blocks = copy.deepcopy(state)

    def insert(self, line, column, text):
        self._inside[line].append((column, column, text))

    def around(self, node, before, after):
        self.insert(node.lineno, node.col_offset, before)
        self.insert(node.end_lineno, node.end_col_offset, after)

    def replace(self, node, text):
        if node.lineno != node.end_lineno:
            raise ByHand(f"line {node.lineno} goes on in the next line")
        self._inside[node.lineno].append((node.col_offset, node.end_col_offset, text))

    def remove(self, line, first, last):
        self._inside[line].append((first, last, ""))

    def lines_before(self, statement, lines):
        self._alone(statement, statement)
        self._before[statement.lineno] += [self._indent(statement) + line if line else "" for line in lines]

    def lines_after(self, statement, lines):
        self._alone(statement, statement)
        self._after[statement.end_lineno] += [self._indent(statement) + line if line else "" for line in lines]

    def block(self, first, last, header):
        """The statements from `first` to `last`, of one list, one level deeper below `header`."""
        self._alone(first, last)
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            inside = first.lineno <= token.start[0] and token.end[0] <= last.end_lineno
            if inside and token.start[0] != token.end[0] and token.type not in (tokenize.NEWLINE, tokenize.NL):
                raise ByHand(f"line {token.start[0]} begins a text of several lines, which would be changed by another indentation")
        self._blocks.append((first.lineno, last.end_lineno, self._indent(first) + header))

    def torch(self):
        """PyTorch's name in this file."""
        for node in self.tree.body:
            for alias in node.names if isinstance(node, ast.Import) else ():
                if alias.name == "torch" and alias.asname or alias.name.split(".")[0] == "torch" and not alias.asname:
                    return alias.asname or "torch"
        self.add_import("torch")
        return "torch"

    def add_import(self, module):
        for node in self.tree.body:
            if isinstance(node, ast.Import) and any(alias.name == module and not alias.asname for alias in node.names):
                return
        self._after_imports(f"import {module}")

    def add_function(self, lines):
        self._after_imports("\n".join(["\n", *lines]))

    def after_imports(self, lines):
        self._after_imports("\n".join(lines))

    def _after_imports(self, text):
        """Right after the imports at the top: more imports, lines, functions. A text that is there already is not added again."""
        last = self._last_import()
        if last is not None:
            self._alone(last, last)
        added = self._after[last.end_lineno if last is not None else 0]
        if text not in added:
            added.append(text)
            added.sort(key=lambda each: (each.startswith("\n"), not each.startswith("import "), each if each.startswith("import ") else ""))

    def _last_import(self):
        """The last import in the block that imports PyTorch, since lines before it may set the environment. Without one: in the block at the top."""
        body = self.tree.body
        place = next((place for place, node in enumerate(body) if _imports_torch(node)), -1)
        docstring = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        if place < 0 and docstring:
            place = 0
        while place + 1 < len(body) and isinstance(body[place + 1], (ast.Import, ast.ImportFrom)):
            place += 1
        return body[place] if place >= 0 else None

    def _indent(self, statement):
        return self.lines[statement.lineno - 1].encode()[: statement.col_offset].decode()

    def _alone(self, first, last):
        after = self.lines[last.end_lineno - 1].encode()[last.end_col_offset :].decode().strip()
        if self._indent(first).strip() or (after and not after.startswith("#")):
            raise ByHand(f"line {first.lineno} has more than one statement")

    def _unit(self):
        """One level of indentation."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno > node.lineno:
                return self._indent(body[0])[len(self._indent(node)) :] or "    "
        return "    "

    def edited(self):
        unit, out = self._unit(), []
        ending = "\r" if self.lines[0].endswith("\r") else ""
        blocks = sorted(self._blocks, key=lambda block: (block[0], -block[1]))

        def put(lines, depth):
            for text in lines:
                out.extend((unit * depth + line if line else "") + ending for line in text.split("\n"))

        put(self._after[0], 0)
        for number, line in enumerate(self.lines, 1):
            depth = sum(first < number <= last for first, last, _ in blocks)
            put(self._before[number], depth)
            for first, _, header in blocks:
                if first == number:
                    put([header], depth)
                    depth += 1
            changed = self._line(number, line)
            if changed.strip() or not line.strip():
                out.append((unit * depth if changed.strip() else "") + changed)
            put(self._after[number], sum(first <= number < last for first, last, _ in blocks))
        return "\n".join(out)

    def _line(self, number, line):
        data = line.encode()
        for first, last, text in sorted(self._inside[number], key=lambda edit: edit[:2], reverse=True):
            data = data[:first] + text.encode() + data[last:]
        return data.decode()

    def check(self):
        """Raises SyntaxError: the edits do not give a program."""
        ast.parse(self.edited())

    def patch(self, name):
        """A unified diff in the file's encoding; b"": no line changed."""
        lines = difflib.unified_diff(_with_ends(self.text), _with_ends(self.edited()), f"a/{name}", f"b/{name}")
        text = "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
        return text.encode(self.encoding.replace("-sig", ""))

    def changed_lines(self):
        """(added, removed)"""
        lines = list(difflib.unified_diff(self.lines, self.edited().split("\n"), n=0))[2:]
        return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def called(call):
    """The function's name without what it is in: "AdamW" of torch.optim.AdamW(...)."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _imports_torch(node):
    names = (
        [alias.name for alias in node.names]
        if isinstance(node, ast.Import)
        else [node.module or ""]
        if isinstance(node, ast.ImportFrom)
        else []
    )
    return any(name.split(".")[0] == "torch" for name in names)


def _has_columns(site):
    return site.get("span") is not None and None not in site["span"]


def _span(node):
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _contains(outer, inner):
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def _with_ends(text):
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])

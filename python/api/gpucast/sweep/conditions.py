"""Comparisons over a case's values, such as "--batch * --seq <= 65536 and model != 'vit'". Parsed here; nothing is executed."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
  | (?P<text>'[^']*'|"[^"]*")
  | (?P<name>(?:--?|\$)?[A-Za-z_][\w.]*(?:-[\w.]+)*(?:=(?!=))?)
  | (?P<sign><=|>=|==|!=|<|>|\*|//|/|%|\+|-|\(|\))
)""",
    re.VERBOSE,
)
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_PRODUCTS = {"*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod}
_SUMS = {"+": operator.add, "-": operator.sub}


class BadCondition(ValueError):
    pass


@dataclass(frozen=True)
class Condition:
    text: str
    names: frozenset[str]
    _holds: Callable[[Mapping[str, Any]], bool]

    def concerns(self, values: Mapping[str, Any]) -> bool:
        """Whether a case has all values that the condition names."""
        return all(name in values for name in self.names)

    def holds(self, values: Mapping[str, Any]) -> bool:
        try:
            return self._holds(values)
        except ZeroDivisionError:
            raise BadCondition(f"'{self.text}' divides by 0") from None


def parse_condition(text: str, names: list[str]) -> Condition:
    """Raises BadCondition. `names`: those that a case may have."""
    parser = _Parser(text, names)
    return Condition(text, frozenset(parser.used), parser.parsed)


def number_of(value: Any) -> Any:
    """A text that is a number, as a number: YAML leaves 1e-4 a text."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


class _Parser:
    def __init__(self, text: str, names: list[str]):
        self.text, self.names, self.used = text, names, set()
        self.tokens = self._tokens()
        self.at = 0
        self.parsed = self._all()

    def _tokens(self) -> list[tuple[str, str]]:
        tokens, at = [], 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if not match:
                raise BadCondition(f"'{self.text}' cannot be read from '{self.text[at:].strip()}' on")
            tokens.append((match.lastgroup, match.group(match.lastgroup)))
            at = match.end()
        return tokens

    def _peek(self) -> str | None:
        kind, token = self.tokens[self.at] if self.at < len(self.tokens) else (None, None)
        return token if kind in ("sign", "name") else None

    def _all(self):
        comparisons = [self._comparison()]
        while self._peek() == "and":
            self.at += 1
            comparisons.append(self._comparison())
        if self.at < len(self.tokens):
            raise BadCondition(f"'{self.text}' goes on after a comparison; join comparisons with 'and'")
        return lambda values: all(holds(values) for holds in comparisons)

    def _comparison(self):
        left, sign = self._operation(_SUMS), self._peek()
        if sign not in _COMPARE:
            raise BadCondition(f"'{self.text}' has no comparison there: one of {' '.join(_COMPARE)} is missing")
        self.at += 1
        right, compare = self._operation(_SUMS), _COMPARE[sign]

        def holds(values):
            a, b = left(values), right(values)
            if compare not in (operator.eq, operator.ne) and not (_is_number(a) and _is_number(b)):
                raise BadCondition(f"'{self.text}' compares {a!r} with {b!r}: only numbers have an order")
            return compare(a, b)

        return holds

    def _operation(self, signs):
        below = self._atom if signs is _PRODUCTS else (lambda: self._operation(_PRODUCTS))
        result = below()
        while (sign := self._peek()) in signs:
            self.at += 1
            result = self._combined(signs[sign], result, below())
        return result

    def _combined(self, combine, left, right):
        def value(values):
            a, b = left(values), right(values)
            if not (_is_number(a) and _is_number(b)):
                raise BadCondition(f"'{self.text}' calculates with {a!r} and {b!r}: only numbers can be calculated with")
            return combine(a, b)

        return value

    def _atom(self):
        if self.at == len(self.tokens):
            raise BadCondition(f"'{self.text}' ends too early")
        kind, token = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            constant = number_of(token)
            return lambda values: constant
        if kind == "text":
            constant = number_of(token[1:-1])
            return lambda values: constant
        if token == "(":
            inner = self._operation(_SUMS)
            if self._peek() != ")":
                raise BadCondition(f"'{self.text}' leaves a bracket open")
            self.at += 1
            return inner
        if token in ("true", "false"):
            return lambda values: token == "true"
        return self._named(token)

    def _named(self, token):
        if token not in self.names:
            near = difflib.get_close_matches(token, self.names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.names)}; a text is in quotes"
            raise BadCondition(f"'{self.text}' names {token}, which does not vary: {hint}")
        self.used.add(token)
        return lambda values: number_of(values[token])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

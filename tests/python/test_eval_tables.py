"""eval/tables.py: figures with paper and pencil, and every kind of table once."""

import pytest

from eval import tables
from eval.tutorials.evaluate import printed_tables, time_error

pytestmark = pytest.mark.once


def test_figures():
    assert tables.quantile([4, 1, 3, 2], 0.5) == 2.5 and tables.quantile([7], 0.9) == 7
    assert tables.quantile(range(11), (0.05, 0.95)) == pytest.approx([0.5, 9.5])
    assert tables.median([None, 3, 1]) == 2 and tables.median([None]) is None
    assert tables.mean([None, 3, 2]) == 2.5 and tables.mean([]) is None
    assert tables.error(90, 100) == pytest.approx(-0.1)
    assert tables.sizes([-0.3, 0.1, 0.2]) == pytest.approx((0.2, 0.2, 0.28, 0.3))


def test_cells():
    assert (tables.percent(0.12345), tables.percent(0.12345, 1), tables.percent(None)) == ("12.35", "12.3", "-")
    assert (tables.signed(0.5), tables.signed(-0.5, 0), tables.signed(None)) == ("+50.00", "-50", "-")


def test_tables():
    header, lines = ["name", "n", "why"], [["a", 1, "x"], ["bb", 22, "yy"]]
    body = "| a | 1 | x |\n| bb | 22 | yy |"
    assert tables.markdown(header, lines) == f"| name | n | why |\n| --- | ---: | ---: |\n{body}"
    assert tables.markdown(header, lines, words=(0, 2)) == f"| name | n | why |\n| --- | ---: | --- |\n{body}"
    assert tables.markdown(header, lines, words=3, tight=True) == f"| name | n | why |\n|---|---|---|\n{body}"
    assert tables.table(header, lines, as_markdown=False) == "name   n  why\na      1    x\nbb    22   yy"
    assert tables.table(header, [], as_markdown=False) == "name  n  why"


def test_tables_that_triton_prints():
    text = """the maximum difference is 0.0
softmax-performance:
         N       Triton  Torch (native)
0    256.0   682.666643      744.727267
..     ...          ...             ...
97 12672.0  1577.836533     1008.716405
note: done
attention-bwd:
    N_CTX     Triton
0  1024.0   0.291873
"""
    tables = printed_tables(text)
    assert tables["softmax-performance"][256]["Torch (native)"] == 744.727267
    assert tables["softmax-performance"][12672]["Triton"] == 1577.836533
    assert tables["attention-bwd"] == {1024: {"N_CTX": 1024, "Triton": 0.291873}}
    assert time_error("GB/s", 100, 200) == -0.5, "twice as fast is half the time"
    assert time_error("ms", 100, 200) == 1

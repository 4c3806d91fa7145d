"""The tables of eval/thesis, made small, compared with arithmetic; and the committed files there."""

import csv
from importlib.util import find_spec

import pytest
from conftest import ROOT

from eval.thesis import tables

THESIS = ROOT / "eval/thesis"

pytestmark = pytest.mark.once

FLOAT = 4
USERS, ITEMS = 138493, 26744
NCF_WEIGHTS = {
    "mf_user_embed.weight": USERS * 64,
    "mf_item_embed.weight": ITEMS * 64,
    "mlp_user_embed.weight": USERS * 128,
    "mlp_item_embed.weight": ITEMS * 128,
    "mlp.0.weight": 256 * 256,
    "mlp.0.bias": 256,
    "mlp.1.weight": 256 * 128,
    "mlp.1.bias": 128,
    "mlp.2.weight": 128 * 64,
    "mlp.2.bias": 64,
    "final.weight": 128,
    "final.bias": 1,
}


def test_ncf(gpucast_bin, tmp_path):
    batch = 4096
    blocks, counted = tables.measure(gpucast_bin, "ncf", batch, tmp_path)
    weights = {name: FLOAT * count for name, count in NCF_WEIGHTS.items()}
    for name, size in weights.items():
        assert blocks[name] == counted[name] == size
        assert blocks[f"{name}_grad"] == size
    for row in "total layer weight usage", "total layer weight gradient usage":
        assert blocks[row] == sum(weights.values())
    # The two factors of the product; the joined tables; ReLU's outputs 256, 128, 64; the joined 64 + 64; the last layer's output,
    # which the loss keeps; and the loss.
    assert blocks["total feature map usage"] == FLOAT * batch * (64 + 64 + 256 + 256 + 128 + 64 + 128 + 1) + FLOAT
    # The gradient from the last layer is batch * 128 floats, once for each address that the allocator gave it.
    assert counted["intermediate gradients"] >= FLOAT * batch * 128
    assert blocks["intermediate gradients"] >= FLOAT * batch * 128
    assert blocks["peak cached"] > blocks["total layer weight usage"] * 4  # weights, gradients, Adam's two


@pytest.mark.slow
def test_resnet50_counts_miss_the_last_layer(gpucast_bin, tmp_path):
    """Why appendix A has 94 MB of gradients and 102 MB of weights: the last layer's gradient is first seen as an intermediate one."""
    if find_spec("torchvision") is None:
        pytest.skip("no torchvision")
    blocks, counted = tables.measure(gpucast_bin, "resnet50", 2, tmp_path)
    weight, bias = "module.fc.weight", "module.fc.bias"
    assert blocks[f"{weight}_grad"] == blocks[weight] == FLOAT * 1000 * 2048
    assert counted[f"{weight}_grad"] == counted[f"{bias}_grad"] == 0
    assert blocks["total layer weight gradient usage"] == blocks["total layer weight usage"] == FLOAT * 25_557_032
    assert counted["total layer weight gradient usage"] == FLOAT * (25_557_032 - 1000 * 2048 - 1000)
    assert counted["intermediate gradients"] >= blocks[weight]


@pytest.mark.parametrize("job", ["ncf", "resnet50"])
def test_committed(job):
    """Every figure of the thesis is in the committed table, and every difference is one."""
    with open(THESIS / f"thesis_{job}.csv", encoding="utf-8") as file:
        thesis = {(column, line["row"]): line[column] for line in csv.DictReader(file) for column in line if column != "row"}
    with open(THESIS / f"{job}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == tables.COLUMNS
    made = {(row["batch"], row["row"]): row["thesis_mb"] for row in rows}
    assert thesis.items() <= made.items()
    for row in rows:
        for kind in "blocks", "counted":
            assert int(row[f"{kind}_mb"]) - int(row["thesis_mb"]) == int(row[f"{kind}_difference_mb"])

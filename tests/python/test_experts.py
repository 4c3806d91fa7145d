"""Layers of experts, hand-written as in public code: what the card's run has of them, compared with the host's real routing."""

import statistics
import sys

import pytest

from eval.values import routing

TOKENS, ROUNDS = 256, 5

# Router's masks in other forms: (the scores' mask, indices that may be chosen).
MASKS = """
import torch

scores = torch.nn.Linear(16, 32).cuda()(torch.randn(512, 16, device="cuda"))
left = torch.arange(32, device="cuda").div(8, rounding_mode="floor").remainder(2).bool()
odd = {index for index in range(32) if index // 8 % 2}

def chosen(indices):
    return {index for row in indices.flatten(1).tolist() for index in row}

assert chosen(scores.topk(4).indices) == set(range(32))
assert chosen(scores.masked_fill(~left, 0.0).topk(4).indices) == odd
assert chosen(torch.where(left, scores, float("-inf")).softmax(-1).topk(4, -1, True, False)[1]) == odd
assert chosen(torch.where(left, torch.tensor(-1e9, device="cuda"), scores).argmax(-1, keepdim=True)) == set(range(32)) - odd
grouped = scores.detach().clone().view(512, 4, 8)
grouped.masked_fill_(~left.view(4, 8).any(-1)[None, :, None], float("-inf"))
assert chosen(grouped.flatten(1).float().topk(3).indices) == odd
grouped.normal_()
assert chosen(grouped.flatten(1).topk(3).indices) == set(range(32))  # other scores now
twice = scores.masked_fill(~left, float("-inf")).masked_fill(torch.arange(32, device="cuda") < 16, float("-inf"))
assert chosen(twice.topk(4).indices) == set(range(24, 32))
assert chosen(scores.masked_fill(~left, 9.0).topk(4).indices) == set(range(32))
assert chosen(scores.masked_fill(~left, float("-inf")).topk(4, largest=False).indices) == set(range(32))
print("right=1")
"""


@pytest.fixture(scope="module")
def blocks(gpucast_bin):
    lines = routing.measure(gpucast_bin, sys.executable, ["--tokens", TOKENS, "--width", 32, "--rounds", ROUNDS])
    return {line["block"]: line for line in lines}


def values(rounds, name):
    return [one[name] for one in rounds]


@pytest.mark.once
@pytest.mark.parametrize("name", ["each", "one-hot", "grouped", "sorted", "capacity"])
def test_experts_have_the_tokens_and_the_peak_of_the_host(blocks, name):
    block = blocks[name]
    host, card = block["host"], block["card"]
    assert len(host) == len(card) == ROUNDS
    routed = TOKENS * block["chosen"]
    if name == "capacity":  # drops tokens, more or fewer of them
        assert all(0.85 * routed < total <= routed for total in values(host + card, "sum"))
    else:
        assert set(values(host + card, "sum")) == {routed}
    assert set(values(card, "hit")) == set(values(host, "hit")) == {block["experts"]}
    peaks = values(host, "peak")
    assert min(peaks) * 0.998 <= statistics.median(values(card, "peak")) <= max(peaks) * 1.002
    assert min(peaks) * 0.99 <= min(values(card, "peak")) and max(values(card, "peak")) <= max(peaks) * 1.01
    assert len(set(values(card, "peak"))) > 1  # drawn again in each round
    # The allocator's own peak; the first round also has workspaces.
    assert values(card, "peak")[1:] == values(card, "allocated")[1:]


@pytest.mark.once
def test_experts_are_of_the_best_groups(blocks):
    assert values(blocks["grouped"]["card"], "groups") == values(blocks["grouped"]["host"], "groups") == [3] * ROUNDS


@pytest.mark.once
def test_masks_decide_what_is_chosen(gpucast):
    run = gpucast(MASKS, "--values", "on")
    assert run.printed("right") == 1, run.err

#!/usr/bin/env python3
"""Step times of six trainings on every card of the table: docs/results/cards.md.

    python -m eval.cards.all_cards CAPTURES      # captures of eval/cards/train.py, named MODEL.gpucast and MODELamp.gpucast
    python -m eval.cards.all_cards CAPTURES --check      # only the pairs of cards that are out of order

A card is better than another if no figure of its datasheet is worse: multiprocessors, clock, L2, bandwidth, watts, each rate. The better
card must not be slower. Where it is, the line says why.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from eval import page

PAGE = Path(__file__).resolve().parents[2] / "docs/results/cards.md"
MODELS = {"resnet50": "ResNet-50", "bert": "BERT-base", "gpt2": "GPT-2", "vit_b_16": "ViT-B/16", "unet": "U-Net", "lstm": "LSTM"}
TOLERANCE = 1.001


def run(*arguments):
    program = os.environ.get("GPUCAST_BIN", "gpucast")
    return json.loads(subprocess.run([program, *arguments, "--format", "json"], check=True, capture_output=True).stdout)


def figures(card):
    """Of the datasheet: more is better in each."""
    return {
        "multiprocessors": card["multiprocessors"],
        "clock": card["clock_khz"],
        "L2": card["l2_bytes"],
        "bandwidth": card["bandwidth_bytes_per_s"],
        "power": card["power_w"],
        **card["peak_flop_per_s"],
    }


def is_better(a, b):
    mine, other = figures(a), figures(b)
    return all(mine.get(name, 0) >= value for name, value in other.items()) and mine != other


def reason(better, worse, measured):
    """Why a better card may be slower here; "" if there is none."""
    capability = better["compute_capability"], worse["compute_capability"]
    if measured[better["id"]] != measured[worse["id"]]:
        one = better["id"] if measured[better["id"]] else worse["id"]
        return f"constants measured on {one}, and those of an architecture for the other"
    if measured[better["id"]]:
        return "each card has its own measured constants"
    if capability[0] != capability[1]:
        return f"constants of two architectures ({capability[0]}, {capability[1]})"
    if ("GeForce" in better["name"]) != ("GeForce" in worse["name"]):
        return "a GeForce card's constants follow from the RTX 3090's, and its datasheet states lower clocks than it runs at"
    return ""


def out_of_order(cards, times, measured):
    """Each pair in which the better card is slower: (better, worse, {model: how much slower}, why)."""
    found = []
    for better in cards:
        for worse in cards:
            if not is_better(better, worse):
                continue
            slower = {
                model: of[better["id"]] / of[worse["id"]] for model, of in times.items() if of[better["id"]] > of[worse["id"]] * TOLERANCE
            }
            if slower:
                found.append((better["id"], worse["id"], slower, reason(better, worse, measured)))
    return found


def milliseconds(ns):
    return f"{ns / 1e6:.0f}" if ns >= 1e8 else f"{ns / 1e6:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path)
    parser.add_argument("--check", action="store_true", help="print the pairs that are out of order, and leave the page as it is")
    options = parser.parse_args()
    cards = run("gpus")["gpus"]
    times, measured = {}, {}
    for model in MODELS:
        for amp in "", "amp":
            answer = run("time", str(options.captures / f"{model}{amp}.gpucast"), "--gpu", "all", "--cpu-speed", "1000")
            times[model + amp] = {card["gpu"]: card["step"]["expected_ns"] for card in answer["cards"]}
            measured |= {card["gpu"]: card["card_measured"] for card in answer["cards"]}
    pairs = out_of_order(cards, times, measured)
    better = sum(is_better(a, b) for a in cards for b in cards)
    unexplained = [pair for pair in pairs if not pair[3]]
    print(
        f"{len(cards)} cards, {better} pairs in which one is better in every figure; {len(pairs)} out of order, {len(unexplained)} unexplained"
    )
    for one, other, slower, why in pairs:
        worst = max(slower, key=slower.get)
        print(f"  {one} slower than {other}: up to {slower[worst]:.3f} ({worst}); {why or 'NO REASON'}")
    if options.check:
        return
    lines = ["| card | " + " | ".join(f"{name} | fp16" for name in MODELS.values()) + " |", "|---|" + "---:|" * (2 * len(MODELS))]
    for card in cards:
        row = [milliseconds(times[model + amp][card["id"]]) for model in MODELS for amp in ("", "amp")]
        lines.append(f"| {card['id']} | " + " | ".join(row) + " |")
    by_reason = {}
    for pair in pairs:
        by_reason.setdefault(pair[3] or "no reason found", []).append(pair)
    order = ["| reason | pairs | worst |", "|---|---:|---|"]
    for why, of in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        one, other, slower, _ = max(of, key=lambda pair: max(pair[2].values()))
        order.append(f"| {why} | {len(of)} | {one} takes {max(slower.values()):.2f} times as long as {other} |")
    summary = f"{len(pairs)} of {better} such pairs are out of order, {len(unexplained)} of them without a reason."
    page.write(
        PAGE,
        "python -m eval.cards.all_cards CAPTURES",
        f"{len(cards)} cards, {2 * len(MODELS)} trainings",
        {
            "times": "\n".join(lines),
            "order": summary + "\n\n" + "\n".join(order),
        },
    )


if __name__ == "__main__":
    main()

"""Files of measured rows, and the cards that they name."""

import csv
import functools
import gzip
import json
import sys

from eval import ROOT

# Names in data sets and in gpucast. DeepBench's V100 is a DGX-1's: 16 or 32 GB, both are equally fast.
CARDS = {
    "A100": "a100-80",
    "A40": "a40",
    "B200": "b200",
    "GTX_1080_Ti": "gtx1080ti",
    "GeForce_GTX_1080_TI": "gtx1080ti",
    "GeForce_RTX_2080_TI": "rtx2080ti",
    "GeForce_RTX_2080_TI_V2": "rtx2080ti",
    "H100": "h100-80",
    "H200": "h200",
    "L40S": "l40s",
    "NVIDIA_A10": "a10",
    "NVIDIA_A100-PCIE-40GB": "a100-40-pcie",
    "NVIDIA_A100-SXM4-40GB": "a100-40",
    "NVIDIA_A100-SXM4-80GB": "a100-80",
    "NVIDIA_A100_80GB_PCIe": "a100-80-pcie",
    "NVIDIA_B200": "b200",
    "NVIDIA_GH200_480GB": "gh200",
    "NVIDIA_GeForce_RTX_3090": "rtx3090",
    "NVIDIA_GeForce_RTX_4090": "rtx4090",
    "NVIDIA_H100_80GB_HBM3": "h100-80",
    "NVIDIA_H100_PCIe": "h100-80-pcie",
    "NVIDIA_H200": "h200",
    "NVIDIA_L4": "l4",
    "NVIDIA_RTX_6000_Ada_Generation": "rtx6000ada",
    "NVIDIA_RTX_A6000": "a6000",
    "P100": "p100-16-pcie",
    "Quadro_RTX_8000": "rtx8000",
    "TITAN_V": "titanv",
    "Tesla_P100-PCIE-16GB": "p100-16-pcie",
    "Tesla_P4": "p4",
    "Tesla_T4": "t4",
    "Tesla_V100-PCIE-32GB": "v100-32-pcie",
    "Tesla_V100-SXM2-16GB": "v100-16",
    "V100": "v100-16",
}


GPUS = {card["id"]: card for card in json.loads((ROOT / "data" / "gpus.json").read_text())["gpus"]}


# vidur's A100s: its paper names Azure's NC96ads_A100_v4, whose cards are on PCIe (docs/profiling.md there: the same rows serve for both).
VIDUR_CARDS = {"A100": "a100-80-pcie", "A40": "a40"}


@functools.cache
def card_of(name):
    """The card's id: by CARDS, or the name in gpucast's table; None if neither knows it. A name missing in GPUS is reported once on standard error."""
    key = name.replace(" ", "_")
    found = CARDS.get(key)
    for id_, card in GPUS.items():
        names = {id_, card["name"], card["name"].removeprefix("NVIDIA "), card["name"].removeprefix("NVIDIA GeForce ")}
        if found is None and key.lower() in {known.replace(" ", "_").lower() for known in names}:
            found = id_
    if found not in GPUS:
        print(f"left out: rows of '{name}', which `gpucast gpus` does not have", file=sys.stderr)
    return found


def read_csv(path):
    """[] if there is no such file, plain or compressed."""
    for found in (path, path.with_name(path.name + ".gz")):
        if found.exists():
            with (gzip.open if found.suffix == ".gz" else open)(found, "rt", newline="") as file:
                return list(csv.DictReader(file))
    return []

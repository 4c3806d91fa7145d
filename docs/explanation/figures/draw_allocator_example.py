#!/usr/bin/env python3
"""Draws allocator-example.svg from what `gpucast replay` says of allocator-example.events.txt, one row an event.

python docs/explanation/figures/draw_allocator_example.py --gpucast build/release/bin/gpucast
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 2**20
SCALE = 13  # pixels a MiB
LEFT, ROW, BAR, GAP = 250, 34, 20, 14
WIDTH = 800
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#999999"]  # Okabe and Ito's


def size(number):
    return f"{number / MIB:g} MiB" if number >= MIB else f"{number / 1024:.0f} KiB"


def say(words):
    if words[0] == "a":
        return f"{words[1]}: allocate {size(int(words[2]))}"
    return {"f": f"free {words[1]}" if len(words) > 1 else "", "e": "empty_cache()"}[words[0]]


def state(gpucast, lines):
    """Segments and totals after these events."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("# torch 2.14.1\n" + "\n".join(lines) + "\n")
        file.flush()
        out = subprocess.run([gpucast, "replay", file.name, "--events", "-"], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    segments = next(row["segments"] for row in rows if "segments" in row)
    steps = [row for row in rows if "op" in row]
    names = {}  # address -> id of what lives there
    for step in steps:
        if step["op"] == "a":
            names[step["addr"]] = step["id"]
        elif step["op"] == "f":
            names.pop(step["addr"])
    return segments, names, steps[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the picture is not up to date")
    args = parser.parse_args()
    events = [line for line in (HERE / "allocator-example.events.txt").read_text().splitlines() if not line.startswith("#")]
    out = []
    top = 40
    for count, event in enumerate(events, 1):
        segments, names, step = state(args.gpucast, events[:count])
        words = event.split()
        y = top + (count - 1) * (ROW + 6)
        out.append(f'<text x="12" y="{y + 14}">{say(words)}</text>')
        totals = f"allocated {step['allocated'] / MIB:.1f}, reserved {step['reserved'] / MIB:g}"
        out.append(f'<text x="12" y="{y + 28}" class="small">{totals}</text>')
        x = LEFT
        for segment in segments:
            for address, block_size, requested, block_state in segment["blocks"]:
                width = block_size / MIB * SCALE
                if block_state == "allocated":
                    name = names[address]
                    colour = COLOURS[(int(name) - 1) % len(COLOURS)]
                    used = requested / MIB * SCALE
                    out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}" fill-opacity="0.45"/>')
                    out.append(f'<rect x="{x:.1f}" y="{y}" width="{used:.1f}" height="{BAR}" fill="{colour}"/>')
                    if width > 9:
                        out.append(f'<text x="{x + width / 2:.1f}" y="{y + 15}" class="name">{name}</text>')
                else:
                    out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" class="free"/>')
                x += width
            total = segment["total_size"] / MIB
            out.append(f'<rect x="{x - total * SCALE:.1f}" y="{y}" width="{total * SCALE:.1f}" height="{BAR}" class="segment"/>')
            out.append(f'<text x="{x - total * SCALE:.1f}" y="{y + BAR + 11}" class="small">{total:g}</text>')
            x += GAP
    height = top + len(events) * (ROW + 6) + 10
    style = (
        "text{font:13px sans-serif;fill:#222}.small{font-size:10px;fill:#555}.name{font-size:11px;fill:#000;text-anchor:middle}"
        ".free{fill:#eee}.segment{fill:none;stroke:#222;stroke-width:1.5}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    title = "<title>Segments and blocks of PyTorch's CUDA caching allocator, after each event of the example</title>"
    legend = '<text x="12" y="22" class="small">after each event; MiB; a frame is a segment, grey is free, pale is rounding that stays with its block</text>'
    svg = "\n".join(
        [head, title, f"<style>{style}</style>", f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', legend, *out, "</svg>", ""]
    )
    picture = HERE / "allocator-example.svg"
    if args.check:
        if picture.read_text() != svg:
            raise SystemExit(f"{picture} is not what gpucast replay says now: run this without --check and look at the difference")
        return
    picture.write_text(svg)


if __name__ == "__main__":
    main()

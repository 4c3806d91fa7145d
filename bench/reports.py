#!/usr/bin/env python3
"""Reports of a long capture: the time of each; the size of the HTML file, and the time until its page can be used.

    python3 bench/reports.py --gpucast build/release/bin/gpucast --modules build/web-test/node_modules long.gpucast
    (bench/make_capture.py makes a long capture of a short one)

The answers are checked: the page's totals are those of `gpucast analyze`. Returns non-zero only when one is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def timed(command, **more):
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return time.perf_counter() - begin, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--modules", required=True, help="a node_modules folder with playwright-core (make test-web makes one)")
    args = parser.parse_args()
    gpucast = str(Path(args.gpucast).resolve())
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "report.html"
        _, report = timed([gpucast, "analyze", args.capture, "--format", "json"])
        text_s = {name: timed([gpucast, name, args.capture])[0] for name in ("analyze", "breakdown", "explain")}
        export_s, _ = timed([gpucast, "export", args.capture, "--to", "html", "-o", html])
        size = html.stat().st_size
        environment = os.environ | {"GPUCAST_BIN": gpucast, "GPUCAST_MODULES": str(Path(args.modules).resolve())}
        _, out = timed(["node", ROOT / "tests/web/measure.mjs", html], env=environment)
    report, page = json.loads(report), json.loads(out)
    for name, expected in (
        ("allocated", report["peak"]["allocated_bytes"]),
        ("reserved", report["peak"]["reserved_bytes"]),
        ("events", report["counts"]["allocator_events"]),
    ):
        if page[name] != expected:
            sys.exit(f"the page says {page[name]} for {name}, analyze {expected}")
    print(f"{page['events']} events, {page['blocks']} blocks, the same peaks as analyze")
    for name, seconds in text_s.items():
        print(f"  {name + ', text':26}{seconds:8.2f} s")
    print(f"  export --to html          {export_s:8.2f} s, analysis included")
    print(f"  file                      {size / 2**20:8.2f} MiB, the page itself {page['page_bytes'] / 2**10:.0f} KiB")
    print(f"  page can be used          {page['ready_ms'] / 1000:8.2f} s after it was opened, in headless Chromium")
    print(f"  zoom                      {page['zoom_ms']:8.0f} ms until it is drawn (median)")
    print(f"  another moment            {page['moment_ms']:8.0f} ms (median)")
    print(f"  filter by a word          {page['filter_ms']:8.0f} ms (median)")


if __name__ == "__main__":
    main()

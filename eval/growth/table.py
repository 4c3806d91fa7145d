"""Scripts whose memory grows, and scripts whose memory does not: what `gpucast run` says of each.

    python -m eval.growth.table --gpucast build/fast/bin/gpucast --python ENV/bin/python [--enforced] [NAME ...]

A script in leaks/ has the bytes that it keeps in each step in its header, and a comment "kept here" at the line that keeps them. With
--enforced each leak that a card cannot hold for long runs again under --enforce-capacity, until PyTorch's allocator is out of memory.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CARD = "rtx3070"  # 8 GiB: full soon
MOST_STEPS = 1500  # of a run until memory is out


def run(words, timeout_s=600):
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(words)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def header(text):
    found = re.search(r"^bytes a step: (.*)$", text, re.MULTILINE)
    options = re.search(r"^options: (.*)$", text, re.MULTILINE)
    kept = [number for number, line in enumerate(text.splitlines(), 1) if "# kept here" in line]
    return found and int(evaluated(found.group(1))), options.group(1).split() if options else [], kept


def evaluated(expression):
    """The value of a sum written by hand: numbers, + * / and brackets."""
    operations = {ast.Add: lambda a, b: a + b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a // b}

    def value(node):
        return node.value if isinstance(node, ast.Constant) else operations[type(node.op)](value(node.left), value(node.right))

    return value(ast.parse(expression, mode="eval").body)


def lines_named(growth, name):
    """The numbers of the script's lines that the report names for the largest holder."""
    holder = growth["holders"][0]
    texts = [*holder["kept_at"], *(made["line"].split(" ")[0] for made in holder["made"][:1] if made["line"])]
    return {int(text.rpartition(":")[2]) for text in texts if Path(text.rpartition(":")[0]).name == name}


def measure(options, script):
    bytes_per_step, run_options, kept = header(script.read_text(encoding="utf-8"))
    words = [options.gpucast, "run", "--gpu", CARD, "--format", "json"]
    report = run([*words, *run_options, "--", options.python, str(script)])
    growth = report["growth"]
    row = {"name": f"{script.parent.name}/{script.stem}", "verdict": report["verdict"], "steps": report["steps"]}
    if bytes_per_step is None:
        return {**row, "right": report["verdict"] == "fits", "bytes": "", "line": "", "out_of_memory": ""}
    grows = report["verdict"] == "grows" and growth is not None
    row |= {"right": grows, "bytes": "", "line": "", "out_of_memory": ""}
    if not grows:
        return row
    found = growth["bytes_per_step"]
    row["bytes"] = "exact" if found == bytes_per_step else f"{found}, by hand {bytes_per_step}"
    row["line"] = "right" if lines_named(growth, script.name) & set(kept) else "wrong"
    step = growth["oom_step"]
    row["out_of_memory"] = str(step)
    if options.enforced and step is not None and step <= MOST_STEPS:
        enforced = run([*words, "--enforce-capacity", "--until-end", "--", options.python, str(script)])
        row["out_of_memory"] = f"{step}, enforced {enforced['steps'] + 1}"
        row["step_difference"] = step - enforced["steps"] - 1
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpucast", default="gpucast")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--enforced", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    scripts = [path for folder in ("leaks", "steady") for path in sorted((HERE / folder).glob("*.py"))]
    rows = []
    for script in scripts:
        if options.names and script.stem not in options.names:
            continue
        row = measure(options, script)
        rows.append(row)
        print(
            f"{'right' if row['right'] else 'WRONG':6}{row['name']:38}{row['verdict']:13}{row['steps']:4}  {row['bytes']:34}"
            f"{row['line']:7}{row['out_of_memory']}",
            flush=True,
        )
    leaks = [row for row in rows if row["name"].startswith("leaks")]
    ended = [row for row in leaks if "step_difference" in row]
    print(
        f"{sum(row['right'] for row in rows)} of {len(rows)} right; of {len(leaks)} leaks: bytes exact in "
        f"{sum(row['bytes'] == 'exact' for row in leaks)}, line right in {sum(row['line'] == 'right' for row in leaks)}; step of out of "
        f"memory within one in {sum(abs(row['step_difference']) <= 1 for row in ended)} of {len(ended)} runs until it"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

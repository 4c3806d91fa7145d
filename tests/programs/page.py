"""docs/reference/compatibility.md from the rows of run.py and releases.py."""

MIB = 1 << 20
WORKS = {"equal": "equal", "differs": "**differ**", "message": "message", "steps": "**steps**", "failed": "**fails**", "hangs": "**hangs**"}


def text(words):
    return " ".join(str(words).replace("|", "\\|").split())


def releases_of(rows):
    found = {}
    for row in rows:
        for package, version in row["versions"].items():
            if version:
                found.setdefault(package, version)
    return ", ".join(f"{package} {version}" for package, version in found.items() if package != "torch")


def seconds_line(rows):
    seconds = sorted(row["seconds"] for row in rows)
    return f"the median takes {seconds[len(seconds) // 2]} s, the longest {seconds[-1]} s of wall time on two cores" if seconds else ""


def sizes(row):
    return (f"{row['allocated'] / MIB:.2f}", f"{row['reserved'] / MIB:.0f}") if "allocated" in row else ("", "")


def compiled(rows):
    """A model a line, a mode a column."""
    cells = {tuple(row["name"].split(", ")): row for row in rows}
    models, modes = (list(dict.fromkeys(name[place] for name in cells)) for place in (0, 1))
    lines = [f"| model | {' | '.join(modes)} |", "|---" * (len(modes) + 1) + "|"]
    for model in models:
        parts = []
        for mode in modes:
            row = cells.get((model, mode))
            if row is None:
                parts.append("")
                continue
            word = "" if row["outcome"] == "equal" else f"{WORKS.get(row['outcome'], row['outcome'])}: {text(row.get('problem', ''))[:80]} "
            parts.append(f"{word}{' / '.join(sizes(row))}; {row['seconds']} s")
        lines.append(f"| {model} | {' | '.join(parts)} |")
    return lines


def programs(rows):
    lines = ["| program | peaks | ranks, devices | allocated, MiB | reserved, MiB | s |", "|---|---|---|---|---|---|"]
    for row in rows:
        word = WORKS.get(row["outcome"], row["outcome"])
        why = row.get("problem") or (row.get("says") if row["outcome"] == "message" else "")
        allocated, reserved = sizes(row)
        cell = f"{word}: {text(why)[:160]}" if why else word
        lines.append(f"| {text(row['name'])} | {cell} | {row.get('ranks', '')} | {allocated} | {reserved} | {row['seconds']} |")
    return lines


INTRODUCTION = {
    "torch.compile": "Twelve small models (`tests/programs/scripts/models.py`), four steps each: peak allocated / reserved in MiB, wall time.",
    "Libraries": "Packages come from the package index. Models are made from configurations, and the data is synthetic.",
    "Several GPUs": "All ranks run on this machine, except with `--nnodes`: then one node runs here, and the others are "
    "[simulated](../explanation/virtual-gpu.md#the-other-ranks).",
    "Plain PyTorch": "Programs as in tutorials, without a library.",
    "Endings": "Runs that fail or are ended. *message*: gpucast says what happened and why, with exit code 2.",
}


def of_releases(rows):
    lines = [
        "",
        "## PyTorch releases",
        "The examples of this repository with each minor release, `--gpu rtx3060 --cudnn off`: peak allocated / reserved in MiB. Made by",
        "`make releases`.",
        "",
    ]
    examples = list(dict.fromkeys(name for row in rows for name in row["peaks"]))
    lines += [f"| PyTorch | CUDA | Python | {' | '.join(examples)} |", "|---" * (len(examples) + 3) + "|"]

    def cell(peaks):
        if "allocated" not in peaks:
            return text(peaks.get("problem", ""))[:120]
        return " / ".join(sizes(peaks)) + ("" if peaks["equal"] else f" {WORKS['differs']}")

    newest_first = sorted(rows, key=lambda row: [[-int(part) for part in row["torch"].split(".")], row["python"]])
    for row in newest_first:
        parts = [cell(row["peaks"].get(name, {})) for name in examples]
        lines.append(f"| {row['torch']} | {row['cuda']} | {row['python']} | {' | '.join(parts)} |")
    return [*lines, "", *RELEASES_DIFFER]


RELEASES_DIFFER = (
    "A figure that differs from the program's own counters is marked *differ*. Releases differ from each other for these reasons:",
    "- 2.15 allocates cuBLAS' workspaces for each call and frees them again ([pytorch#194311](https://github.com/pytorch/pytorch/pull/194311)). At a peak",
    "  outside of matrix products, as in an optimizer's step, two workspaces of 8.125 MiB are missing. `gpucast diff` of two captures shows them in the line *workspaces*.",
    "- 2.9 to 2.11 keep a separate workspace of 1 MiB for cuBLASLt ([pytorch#156495](https://github.com/pytorch/pytorch/pull/156495)). From 2.12 on, cuBLASLt uses cuBLAS' workspace",
    "  ([pytorch#168175](https://github.com/pytorch/pytorch/pull/168175)).",
    "- The other 5 MiB of the GPT in 2.12 to 2.14 are optimizer state. The tensors are the same, but blocks lie at other places, so more rests below 1 MiB are not split off.",
    "- 2.0 is built for CUDA 11.7: gpucast reports this and ends with exit code 2.",
)


def markdown(rows, releases, notes=""):
    good = [row for row in rows if row["outcome"] in ("equal", "message")]
    hung = [row for row in rows if row["outcome"] == "hangs"]
    left = [row for row in rows if row["left"]]
    torch = sorted({row["versions"]["torch"] for row in rows if row["versions"].get("torch")})
    lines = [
        "# What runs",
        "",
        "Made by `make programs` (`tests/programs`): each program runs unmodified under `gpucast run`, on a normal install of PyTorch "
        f"{', '.join(torch)} (with NVIDIA's wheels and Triton), on a machine without a GPU. *equal*: on every rank and device, the report's peaks equal",
        "`torch.cuda.max_memory_allocated()` and `max_memory_reserved()` in the script, to the byte.",
        "",
        f"{len(rows)} programs: {sum(row['outcome'] == 'equal' for row in rows)} equal, {sum(row['outcome'] == 'message' for row in rows)} correctly end with a message, "
        f"{len(rows) - len(good)} do not work. {len(hung) or 'None'} had to be killed; {seconds_line(rows)}.",
        f"{len(left) or 'None'} left processes, shared memory or files of gpucast's when it ended.",
    ]
    for group in dict.fromkeys(row["group"] for row in rows):
        of_group = [row for row in rows if row["group"] == group]
        lines += ["", f"## {group}", INTRODUCTION.get(group, "")]
        if packages := releases_of(of_group):
            lines[-1] += f" With {packages}."
        lines += ["", *(compiled(of_group) if group == "torch.compile" else programs(of_group))]
    if releases:
        lines += of_releases(releases)
    return "\n".join(lines) + "\n" + notes

"""From rows to predictions: missing captures are made, then `gpucast time` runs for the rows' cards."""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import subprocess
from pathlib import Path

from eval import jobs

OTHER_MODEL = 0.03


@dataclasses.dataclass(frozen=True)
class Prediction:
    expected_ms: float
    low_ms: float
    high_ms: float
    roofline_ms: float  # FLOPs and bytes at the datasheet's rates, operation by operation; 0: not said
    bound: str
    phases_ms: dict
    kinds_ms: dict
    gpu_ms: float = 0.0
    host_ms: float = 0.0
    unknown_share: float = 0.0
    coverage: float = 1.0
    card_measured: bool = False  # its constants are measured, not only the datasheet's


def file_of(folder, job):
    """Names have characters that files may not; a changed job gets another file."""
    text = json.dumps(job, sort_keys=True)
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in job["name"])
    return folder / f"{plain}-{hashlib.sha1(text.encode()).hexdigest()[:8]}.gpucast"


def captures(gpucast, rows, folder, at_once=None):
    """{job name: capture file}, and {job name: why there is none}. Existing captures are not made again."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {row.job["name"]: row.job for row in rows}
    todo = [{**job, "output": str(file_of(folder, job).resolve()), "force": True, "measure_host": True} for job in wanted.values()]
    results = folder / "runs.jsonl"
    # A removed file is made again.
    there = {job["name"] for job in todo if Path(job["output"]).exists()}
    kept = {
        name: line for name, line in jobs.read_lines(results).items() if name in there or line["status"] == "failed" or name not in wanted
    }
    if results.exists():
        jobs.write_lines(results, kept.values())
    # A failed job fails again: a model that this release of timm does not have.
    asked = jobs.read_lines(results.with_name(results.name + ".jobs"))
    failed = {
        job["name"] for job in todo if job["name"] in kept and kept[job["name"]]["status"] == "failed" and asked.get(job["name"]) == job
    }
    lines = {name: kept[name] for name in failed}
    lines.update(jobs.run(gpucast, [job for job in todo if job["name"] not in failed], results, at_once))
    files, problems = {}, {}
    parameters = {row.job["name"]: row.parameters for row in rows}
    for job in todo:
        line = lines[job["name"]]
        why = jobs.problem(line) or other_model(line, parameters[job["name"]])
        if why is None and Path(job["output"]).exists():
            files[job["name"]] = Path(job["output"])
        else:
            problems[job["name"]] = (why or "no capture was written").strip().splitlines()[-1][:200]
    return files, problems


def other_model(line, parameters):
    """A release may have another model under the same name. Its parameters show that; the capture has each in blocks of 512 bytes."""
    categories = (line["report"] or {}).get("categories", ())
    found = sum(category["bytes"] for category in categories if category["name"] == "parameters") / 4
    if parameters > 0 and found > 0 and abs(found / parameters - 1) > OTHER_MODEL:
        return f"another model: {found / 1e6:.2f} M parameters, and {parameters / 1e6:.2f} M where it was measured"
    return None


def ask(gpucast, capture, cards, options=()):
    """{card: Prediction} of one capture."""
    words = [gpucast, "time", str(capture), "--gpu", ",".join(cards), "--format", "json", *options]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return {card["gpu"]: read_card(card) for card in json.loads(done.stdout)["cards"]}


def read_card(card):
    step = card["step"]
    kinds = card["by_kind"]

    def parts(name):
        return {part["name"]: part["gpu_ns"] / 1e6 for part in card[name]}

    return Prediction(
        step["expected_ns"] / 1e6,
        step["low_ns"] / 1e6,
        step["high_ns"] / 1e6,
        sum(part["ideal_ns"] for part in kinds) / 1e6,
        card["bound"],
        parts("by_phase"),
        parts("by_kind"),
        card["gpu_ns"] / 1e6,
        card["host_ns"] / 1e6,
        card["unknown_share"],
        card["coverage"],
        card["card_measured"],
    )


def predict(gpucast, rows, files, options=(), say=lambda text: None):
    """{row name: Prediction}. One call per capture, for all cards of its rows."""
    cards = {gpu["id"] for gpu in jobs.gpus(gpucast)}
    asked = {}
    for row in rows:
        if row.job["name"] in files and row.card in cards:
            asked.setdefault(row.job["name"], {}).setdefault(row.card, []).append(row.name)
    for card in sorted({row.card for row in rows} - cards):
        say(f"left out: {sum(row.card == card for row in rows)} rows of {card}, which `gpucast gpus` does not have")

    def answer(item):
        name, by_card = item
        try:
            return ask(gpucast, files[name], sorted(by_card), options)
        except RuntimeError as error:
            say(f"left out: {name}: {error}")
            return {}

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(answer, asked.items())
        return {row: found[card] for (_, by_card), found in zip(asked.items(), answers) for card in found for row in by_card[card]}

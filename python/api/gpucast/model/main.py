"""The command `gpucast model`: src/cli/model.cc starts it with options that are checked already."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..command import Error, error_from, find_command, stop
from .configs import Model, along, find_model
from .estimate import estimate, estimate_text
from .inference import Inference, inference_script, stage_lines, stages_of
from .kinds import NEXT_WORD, check_length, default_length, is_known, kind_of
from .script import Environment, Training, training_script
from .table import print_table

EXIT_YES, EXIT_NO, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(words: list[str]) -> int:
    options = _options(words)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        if options.list:
            return _list(options)
        code = _answer(options)
        sys.stdout.flush()
        return code
    except Error as error:
        print(f"{error.printed}\n" if error.printed else "", f"gpucast: {error}", sep="", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("gpucast: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _interrupted(*_) -> None:
    raise KeyboardInterrupt


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpucast model")
    parser.add_argument("model")
    for name in ("train", "precision", "optimizer", "attention", "gpu", "write", "output", "format", "batches", "lengths", "precisions"):
        parser.add_argument(f"--{name}", default="")
    for name in ("batch", "seq", "rank", "gpus", "new-tokens"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("checkpointing", "ddp", "fsdp", "zero3", "inference", "table", "list", "trust-remote-code", "force"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(words)


def _list(options: argparse.Namespace) -> int:
    models = along()
    if options.format == "json":
        print(
            json.dumps(
                {"schema_version": 1, "models": [{"id": id, "parameters": one["parameters"]} for id, one in models.items()]}, indent=2
            )
        )
        return EXIT_YES
    width = max(map(len, models))
    for id, one in models.items():
        print(f"{id:{width}}  {one['parameters'] / 1e9:8.3f} billion parameters")
    return EXIT_YES


def _answer(options: argparse.Namespace) -> int:
    model = find_model(options.model)
    kind = kind_of(model)
    model = _without_own_code(model, options)
    _check_packages(options)
    environment = Environment(_release("transformers"))
    if options.inference and kind is not NEXT_WORD:
        raise Error("--inference is for models that generate text", model.name, "leave --inference out")
    if options.table:
        return print_table(model, kind, options, environment, _training)
    length = options.seq or default_length(model, kind)
    check_length(model, kind, length)
    batch = options.batch or 1
    if options.inference:
        what: Any = Inference(batch, length, options.new_tokens, options.precision, options.attention)
        text = inference_script(model, what, environment)
    else:
        what = _training(options, batch, length)
        text = training_script(model, kind, what, environment)
    with _script_file(text, options) as script:
        return _run(options, model, kind, what, script, text)


def _training(options: argparse.Namespace, batch: int, length: int) -> Training:
    division = next((name for name in ("ddp", "fsdp", "zero3") if getattr(options, name)), "")
    if options.train == "qlora" and division in ("fsdp", "zero3"):
        raise Error(f"qlora under --{division} is not supported", "", "take --ddp, or --train lora")
    if options.precision == "fp16" and options.train == "full":
        raise Error("weights in fp16 cannot be trained: the Trainer refuses it", "--precision fp16", "take fp16-mixed or bf16")
    return Training(
        options.train, batch, length, options.precision, options.optimizer, options.checkpointing, options.attention, options.rank,
        options.gpus, division,
    )  # fmt: skip


def _without_own_code(model: Model, options: argparse.Namespace) -> Model:
    """transformers' own architecture is taken where it has one; the repository's code only if that is allowed."""
    if not model.own_code:
        return model
    if is_known(model):
        return Model(**{**vars(model), "own_code": False})
    if not options.trust_remote_code:
        raise Error(
            f"{model.name} needs Python code that comes with it, which was not run", model.source,
            "read that code; if you trust it: --trust-remote-code",
        )  # fmt: skip
    return model


def _check_packages(options: argparse.Namespace) -> None:
    needed = ["torch", "accelerate"]
    if not options.inference:
        needed += {"lora": ["peft"], "qlora": ["peft", "bitsandbytes"]}.get(options.train, [])
        needed += ["deepspeed"] if options.zero3 else []
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise Error(
            f"this Python has no {' and no '.join(missing)}", sys.executable, f"{sys.executable} -m pip install {' '.join(missing)}"
        )
    if options.optimizer and not options.inference:
        names = _optimizers()
        if names and options.optimizer not in names:
            near = (
                [name for name in names if options.optimizer in name]
                or difflib.get_close_matches(options.optimizer, names, 3, 0.4)
                or names
            )
            raise Error(f"the Trainer knows no optimizer {options.optimizer!r}", "--optimizer", f"it knows {', '.join(near[:6])}, ...")


def _optimizers() -> list[str]:
    """As the Trainer's argument optim names them; empty where transformers cannot be imported without gpucast."""
    try:
        with _silence():
            from transformers.training_args import OptimizerNames
    except Exception:
        return []
    return [name.value for name in OptimizerNames]


@contextlib.contextmanager
def _silence():
    """Packages warn while they are imported. What fails is an exception."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _release(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", importlib.metadata.version(package))[:2])


@contextlib.contextmanager
def _script_file(text: str, options: argparse.Namespace):
    """The script's path: the user's file, or one in a folder that is removed."""
    if options.write:
        path = Path(options.write)
        if path.exists() and not options.force:
            raise Error("this file exists already", str(path), "name another, or add --force")
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Error(f"the script cannot be written: {error.strerror}", str(path), "name another file: --write train.py") from None
        yield path.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="gpucast-model-") as folder:
        path = Path(folder) / "train.py"
        path.write_text(text, encoding="utf-8")
        yield path


def run_words(options: argparse.Namespace, script: Path, run_options: list[str]) -> list[str]:
    words = [find_command(), "run", *run_options]
    if options.gpu:
        words += ["--gpu", options.gpu]
    if options.gpus > 1:  # rank 0; the other ranks are simulated
        words += ["--world-size", str(options.gpus)]
    if options.output:
        words += ["--output", os.path.abspath(options.output), *(["--force"] if options.force else [])]
    return [*words, "--", sys.executable, str(script)]


def _run(options: argparse.Namespace, model: Model, kind, what, script: Path, text: str) -> int:
    """Runs the script; meanwhile this process builds the model on the meta device for accelerate's estimate."""
    words = run_words(options, script, ["--format", options.format])
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages,
        tempfile.TemporaryDirectory(prefix="gpucast-model-") as out,
    ):
        process = subprocess.Popen(words, cwd=out, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, encoding="utf-8")
        try:
            with _silence():
                accelerate = estimate(model, kind)
            report = process.communicate()[0]
        finally:
            stop(process)
        messages.seek(0)
        printed = messages.read()
    if process.returncode not in (EXIT_YES, EXIT_NO):
        raise error_from(printed, process.returncode)
    stages = stages_of(printed) if options.inference else {}
    if options.format == "json":
        head = {"name": model.name, "source": model.source, "parameters": accelerate["parameters"]}
        result = {
            "schema_version": 1,
            "model": head,
            "script": text,
            "stages": stages,
            "accelerate": accelerate,
            "report": json.loads(report),
        }
        print(json.dumps({key: value for key, value in result.items() if value != {}}, indent=2))
        return process.returncode
    _print_head(model, kind, what, accelerate)
    print(_own_lines(report, options))
    print("", *stage_lines(stages), estimate_text(accelerate), sep="\n")
    if not options.write:
        print("\nnext, keep the script, to change it or to run it on a card: add --write train.py")
    return process.returncode


def _print_head(model: Model, kind, what, accelerate: dict[str, Any]) -> None:
    count = f", {accelerate['parameters']:,} parameters" if accelerate["parameters"] else ""
    print(f"{model.name}{count}   config: {model.source}")
    if model.quantized:
        print("  its file stores weights in fewer bits; here they have the precision named below")
    size = f"batch {what.batch} of {what.length:,} {kind.length}"
    each = " on each card" if getattr(what, "division", "") else ""
    print(f"  {what}; {size}{each}; transformers {importlib.metadata.version('transformers')}\n")


def _own_lines(report: str, options: argparse.Namespace) -> str:
    """The report, without advice that names a script which is gone, and without the reminder that inference takes no step."""
    parts = report.rstrip("\n").split("\n\n")
    if not options.write and not options.output:
        parts = [part for part in parts if not part.startswith("next, ")]
    if options.inference:
        parts = [part for part in parts if not part.startswith("warning: No optimizer step was taken")]
    return "\n\n".join(parts)

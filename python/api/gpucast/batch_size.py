"""Batch sizes found in advance: the running script's own command, on the virtual GPU, with several sizes.

A child reads its size from a file. The file's path is in the environment and the same for all sizes, so one fork server makes all runs.
"""

from __future__ import annotations

import functools
import gc
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .command import Error, run_command
from .local import OpenBatch
from .report import Report

_FILE = "GPUCAST_BATCH_SIZE_FILE"
_OUT_OF_MEMORY = ("out of memory", "CUDNN_STATUS_NOT_SUPPORTED", "can't allocate memory")
_folder = os.getcwd()  # the script may change it later


def find_executable_batch_size(function=None, starting_batch_size=128, reduce_batch_size_fn=None, *, gpu=None):
    """accelerate.utils.find_executable_batch_size that knows in advance: the same sizes (128, 115, 103, ...), each tried by running this
    script's command on the virtual GPU. The function is called with the first size that fits `gpu`; should it run out of memory after
    all, the next size follows.

    gpu: a name of `gpucast gpus`; else $GPUCAST_GPU, else this machine's own card."""
    if function is None:
        return functools.partial(
            find_executable_batch_size, starting_batch_size=starting_batch_size, reduce_batch_size_fn=reduce_batch_size_fn, gpu=gpu
        )
    name = f"{function.__module__}.{function.__qualname__}"
    batch_size = starting_batch_size
    searched = False

    def reduce():
        nonlocal batch_size
        batch_size = reduce_batch_size_fn() if reduce_batch_size_fn else int(batch_size * 0.9)

    def search():
        nonlocal batch_size
        with Search(name, gpu, has_margin=False) as needs:
            if reduce_batch_size_fn is None:
                sizes = _falling(batch_size)[::-1]
                batch_size = largest(sizes, len(sizes) - 1, needs.bytes_of, needs.capacity_bytes) or 0
            else:
                while batch_size > 0 and needs.bytes_of(batch_size) > needs.capacity_bytes:
                    reduce()
            say(f"batch size {batch_size} is the first that fits {needs.gpu}" if batch_size else f"no batch size fits {needs.gpu}")

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal searched
        _check_arguments(function, args)
        size = asked_size(name)
        if size is not None:
            return function(size, *args, **kwargs)
        if not searched:
            searched = True
            search()
        while batch_size > 0:
            try:
                return function(batch_size, *args, **kwargs)
            except RuntimeError as error:
                if not any(text in str(error) for text in _OUT_OF_MEMORY):
                    raise
            _free()
            reduce()
        raise RuntimeError("No executable batch size found, reached zero.")

    return call


def asked_size(name: str) -> int | None:
    """In a child of a search: the size for this function. None: this process chooses."""
    file = os.environ.get(_FILE)
    asked = json.loads(Path(file).read_text()) if file and os.path.exists(file) else {}
    return asked["size"] if asked.get("name") == name else None


def largest(sizes: Sequence[int], first: int, bytes_of: Callable[[int], int], capacity_bytes: int) -> int | None:
    """The largest of the rising sizes that needs no more bytes than there are. Begins with sizes[first], then goes along the line
    through the two points next to the border; after six points by halves."""
    known: dict[int, int] = {}
    low, high = -1, len(sizes)  # sizes[low] fits, sizes[high] does not
    i = first
    while high - low > 1:
        known[sizes[i]] = bytes_of(sizes[i])
        low, high = (i, high) if known[sizes[i]] <= capacity_bytes else (low, i)
        if len(known) == 1 or len(known) > 6:
            i = min(2 * low + 1, len(sizes) - 1) if high == len(sizes) else (low + high) // 2
        else:
            border = _border(known, capacity_bytes)
            i = sum(size <= border for size in sizes) - 1  # the last that is expected to fit
            i += i == low  # then the next one proves it
        i = min(max(i, low + 1), high - 1)
    return sizes[low] if low >= 0 else None


def _border(known: dict[int, int], capacity_bytes: int) -> float:
    (a, a_bytes), (b, b_bytes) = sorted(known.items(), key=lambda point: abs(point[1] - capacity_bytes))[:2]
    per_sample = (b_bytes - a_bytes) / (b - a)
    return a + (capacity_bytes - a_bytes) / per_sample if per_sample > 0 else float("inf")


class Search:
    """Runs of this script's command on the virtual GPU. If they cannot be made, it says why, and the script goes on without."""

    def __init__(self, name: str, gpu: str | None, has_margin: bool):
        self._name, self._asked_gpu, self._has_margin, self._batch = name, gpu, has_margin, None

    def __enter__(self) -> Search:
        self._temporary = Path(tempfile.mkdtemp(prefix="gpucast-batch-size-"))
        return self

    def __exit__(self, kind, error, _) -> bool:
        if self._batch is not None:
            self._batch.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        if isinstance(error, Error):
            say(f"the batch size is not known in advance: {error}")
        return isinstance(error, Error)

    @functools.cached_property
    def gpu(self) -> str:
        return self._asked_gpu or os.environ.get("GPUCAST_GPU") or _present_card()

    @functools.cached_property
    def capacity_bytes(self) -> int:
        cards = {card["id"]: card["total_memory_bytes"] for card in _cards()}
        if self.gpu not in cards:
            raise Error(f"no GPU is named {self.gpu!r}", to_do="gpucast gpus lists all names")
        return cards[self.gpu]

    def bytes_of(self, size: int) -> int:
        """The least memory that the script runs with, as expected or with a margin: so that 99 % of such jobs run."""
        file = self._temporary / "size.json"
        file.write_text(json.dumps({"name": self._name, "size": size}))
        if self._batch is None:
            self._batch = OpenBatch(["--jobs", "1"], {_FILE: str(file)})
        log = self._temporary / f"log.{size}"
        row = self._batch.run({"name": str(size), "command": _own_command(), "folder": _folder, "gpu": self.gpu, "log": log})
        if row["error"]:
            printed = log.read_text("utf-8", "replace").splitlines()[-5:] if log.exists() else []
            raise Error(row["error"]["message"], f"batch size {size}", row["error"]["to_do"], printed="\n".join(printed))
        report = Report.from_json(row["report"])
        need_bytes = report.request_bytes if self._has_margin else report.min_capacity_bytes or report.device.expected_bytes
        fits = "fits" if need_bytes <= self.capacity_bytes else "does not fit"
        say(f"batch size {size}: {need_bytes / 2**30:.2f} GiB, {fits} {report.gpu}")
        return need_bytes


def _own_command() -> list[str]:
    if "WORLD_SIZE" in os.environ and os.environ["WORLD_SIZE"] != "1":
        raise Error("this process is one of several ranks", to_do="find the batch size before: gpucast fit -- torchrun ...")
    if os.environ.get("GPUCAST_SESSION"):
        raise Error("this script runs on the virtual GPU already")
    words = getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:]
    if not sys.argv[0] or sys.argv[0] == "-" or "ipykernel" in sys.modules:
        raise Error("there is no script to run: this is a notebook or a prompt", to_do="name a command: gpucast.fit([...], gpu=...)")
    return [sys.executable, *words]


def _present_card() -> str:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        raise Error("this machine has no GPU, and no card is named", to_do="add gpu='rtx4090', or set GPUCAST_GPU=rtx4090")
    present = torch.cuda.get_device_properties(torch.cuda.current_device())
    same = [card for card in _cards() if card["name"] == present.name and abs(card["total_memory_bytes"] / present.total_memory - 1) < 0.1]
    if not same:
        raise Error(f"gpucast does not know the card {present.name}", to_do="name one with as much memory: gpu='...' (gpucast gpus)")
    return min(same, key=lambda card: abs(card["total_memory_bytes"] - present.total_memory))["id"]


def _cards() -> list[dict]:
    return json.loads(run_command(["gpus", "--format", "json"]))["gpus"]


def _falling(size: int) -> list[int]:
    """accelerate's sizes: each is 0.9 of the one before."""
    sizes = []
    while size > 0:
        sizes.append(size)
        size = int(size * 0.9)
    return sizes


def _check_arguments(function, args) -> None:
    names = list(inspect.signature(function).parameters)
    if len(names) < len(args) + 1:
        given = ", ".join(f"{name}={value}" for name, value in zip(names[1:], args[1:]))
        raise TypeError(f"the decorator passes the batch size to {function.__name__}: call it without, as {function.__name__}({given})")


def _free() -> None:
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def say(text: str) -> None:
    print(f"gpucast: {text}", file=sys.stderr, flush=True)

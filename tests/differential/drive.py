"""Feeds sequences of allocator operations to PyTorch's own CUDACachingAllocator on the virtual GPU, and writes its actions.

    ENV/bin/python tests/differential/drive.py EVENTS [--alloc-conf CONF] [--capacity-mib N] -o EXPECTED

Formats and rules: README.md in this folder. Run it with the PyTorch to be observed. Each sequence gets its own
process, forked from one that has imported torch and has not touched CUDA, so nothing remains from another sequence.
"""

import argparse
import ctypes
import glob
import gzip
import json
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEFAULT_CAPACITY_MIB = 80000


class DriveError(Exception):
    pass


def open_text(path, mode):
    return gzip.open(path, mode + "t") if str(path).endswith(".gz") else open(path, mode)


def read_events(path):
    """The lines of an event file as lists of words, and its comments' settings: {"alloc_conf": ..., "capacity_mib": ..., ...}."""
    lines, header = [], {}
    with open_text(path, "r") as file:
        for text in file:
            if text.startswith("#"):
                said = re.match(r"# (alloc_conf|capacity_mib|torch|addresses|stream_ids|stream_handles)(?: (.*))?$", text.rstrip("\n"))
                if said:
                    header[said.group(1)] = said.group(2) or ""
            elif text.strip():
                lines.append(text.split())
    return lines, header


def vgpu_folder():
    """The folder with libgpucast_vgpu_core.so: next to GPUCAST_BIN, or the release build's."""
    binary = Path(os.environ.get("GPUCAST_BIN", ROOT / "build/release/bin/gpucast")).resolve()
    folder = binary.parent.parent / "lib/gpucast/vgpu"
    if not (folder / "libgpucast_vgpu_core.so").exists():
        raise DriveError(f"{folder} holds no virtual GPU: build gpucast first, or set GPUCAST_BIN to a build's bin/gpucast")
    return folder


def import_torch():
    """PyTorch over our libraries, and the core's functions."""
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise DriveError(f"{sys.executable} has no PyTorch")
    version = (Path(spec.origin).parent / "version.py").read_text()
    cuda = re.search(r"^cuda\b[^=]*= *'(\d+)", version, re.MULTILINE)
    if cuda is None:
        raise DriveError(f"the PyTorch of {sys.executable} is built without CUDA")
    folder = vgpu_folder()
    core = ctypes.CDLL(str(folder / "libgpucast_vgpu_core.so"), mode=ctypes.RTLD_GLOBAL)
    for path in sorted(glob.glob(f"{glob.escape(str(folder))}/cuda{cuda.group(1)}/*.so")):
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    for name in ("gpucast_vgpu_hold_stream", "gpucast_vgpu_finish_stream"):
        if not hasattr(core, name):
            raise DriveError(f"the virtual GPU in {folder} is older than this driver (no {name}): build gpucast again")
        getattr(core, name).argtypes = [ctypes.c_uint64]
    import torch

    if core.gpucast_vgpu_used():
        raise DriveError("importing torch already used CUDA: sequences cannot have their own card")
    return torch, core


# The allocator's actions so far, in its own counters: they show the event before each line of its history.
class Done:
    def __init__(self):
        self.alloc = self.free_requested = self.free_completed = self.oom = self.mapped_bytes = self.unmapped_bytes = 0

    @staticmethod
    def counters(stats):
        everything = stats["reserved_bytes"]["all"]
        return (
            stats["allocation"]["all"]["allocated"],
            stats["allocation"]["all"]["freed"],
            stats["active"]["all"]["freed"],
            stats["num_ooms"],
            everything["allocated"],
            everything["freed"],
        )

    def add(self, action, size):
        if action in ("segment_alloc", "segment_map"):
            self.mapped_bytes += size
        elif action in ("segment_free", "segment_unmap"):
            self.unmapped_bytes += size
        else:
            setattr(self, action, getattr(self, action) + 1)

    def now(self):
        return (self.alloc, self.free_requested, self.free_completed, self.oom, self.mapped_bytes, self.unmapped_bytes)


class Sequence:
    """One sequence in this process, which must not have used CUDA before."""

    def __init__(self, torch, core, lines, streams):
        self.torch, self.core, self.lines = torch, core, lines
        self.raw = torch._C
        self.raw._cuda_init()
        torch.cuda.init()
        # The history of a sequence is read once, at its end.
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=1 << 30)
        self.streams = [torch.cuda.default_stream(0), *self.named_streams(**streams)]
        self.current = 0
        self.tensors = {}
        self.pools_begun = set()

    def named_streams(self, stream_ids, stream_handles):
        """Streams 1, 2, ... with PyTorch's ids of them, or with handles that have the same order as those in the file."""
        cuda = self.torch.cuda
        if stream_ids:
            first = cuda.Stream(0)  # makes PyTorch's pool
            made = [cuda.Stream(stream_id=one, device_index=first.device_index, device_type=first.device_type) for one in stream_ids[1:]]
        else:
            # The handles of PyTorch's pool ascend.
            ranks = sorted(range(1, len(stream_handles)), key=lambda number: stream_handles[number])
            in_order = {number: cuda.Stream(0) for number in ranks}
            made = [in_order[number] for number in sorted(in_order)]
        order = sorted(range(len(made)), key=lambda number: made[number].cuda_stream)
        if stream_handles and order != sorted(range(len(made)), key=lambda number: stream_handles[number + 1]):
            raise DriveError("the order of '# stream_handles' is not the one of PyTorch's streams with these '# stream_ids'")
        return made

    def stream(self, number):
        while len(self.streams) <= number:
            self.streams.append(self.torch.cuda.Stream(0))
        return self.streams[number]

    def on(self, number):
        if number != self.current:
            self.torch.cuda.set_stream(self.stream(number))
            self.current = number

    def run(self):
        results, boundaries = [], []
        stats = self.raw._cuda_memoryStats
        for i, words in enumerate(self.lines):
            result = {"i": i, "op": words[0]}
            try:
                getattr(self, "op_" + words[0])(result, *words[1:])
            except self.torch.cuda.OutOfMemoryError as error:
                result["error"] = "oom"
                del error  # holds a stack frame
            except RuntimeError as error:
                # A bug of PyTorch's own. Everything after it means nothing.
                results.append({"stopped": str(error).split("\n")[0]})
                break
            now = stats(0)
            result["allocated"] = now["allocated_bytes"]["all"]["current"]
            result["reserved"] = now["reserved_bytes"]["all"]["current"]
            result["active"] = now["active_bytes"]["all"]["current"]
            boundaries.append(Done.counters(now))
            results.append(result)
        final = stats(0)
        snapshot = self.torch.cuda.memory._snapshot()
        number_of = {stream.cuda_stream: number for number, stream in enumerate(self.streams)}
        counts = self.split_history(results, boundaries, snapshot["device_traces"][0], number_of)
        return results, self.segments(snapshot["segments"], number_of), self.summary(final, counts)

    @staticmethod
    def split_history(results, boundaries, history, number_of):
        done, at = Done(), 0
        counts = dict.fromkeys(("segment_alloc", "segment_map", "segment_free", "segment_unmap"), 0)
        for result, boundary in zip(results, boundaries):  # after a stop, a result has no boundary
            events = []
            while done.now() != boundary:
                if at == len(history):
                    raise DriveError(f"event {result['i']}: PyTorch's counters say {boundary}, its history ends at {done.now()}")
                entry = history[at]
                at += 1
                action = entry["action"]
                address = entry["device_free"] if action == "oom" else entry["addr"]
                done.add(action, entry["size"])
                if action in counts:
                    counts[action] += 1
                events.append([action, address, entry["size"], number_of[entry["stream"]]])
            result["events"] = events
        rest = [entry["action"] for entry in history[at:] if entry["action"] != "snapshot"]
        if rest and "stopped" not in results[-1]:
            raise DriveError(f"after the last event PyTorch's history goes on: {rest[:5]}")
        return counts

    @staticmethod
    def segments(segments, number_of):
        made = []
        for segment in sorted(segments, key=lambda one: one["address"]):
            record = {
                "address": segment["address"],
                "total_size": segment["total_size"],
                "allocated_size": segment["allocated_size"],
                "active_size": segment["active_size"],
                "requested_size": segment["requested_size"],
                "stream": number_of[segment["stream"]],
                "large": segment["segment_type"] == "large",
                "expandable": segment["is_expandable"],
            }
            pool = segment["segment_pool_id"][1]
            if pool:
                record["pool"] = pool
            states = {"active_allocated": "allocated", "active_awaiting_free": "pending", "active_pending_free": "pending"}
            record["blocks"] = [
                [block["address"], block["size"], block["requested_size"], states.get(block["state"], block["state"])]
                for block in segment["blocks"]
            ]
            made.append(record)
        return made

    def summary(self, final, counts):
        return {
            "events": len(self.lines),
            "peak_allocated": final["allocated_bytes"]["all"]["peak"],
            "peak_reserved": final["reserved_bytes"]["all"]["peak"],
            "allocated": final["allocated_bytes"]["all"]["current"],
            "reserved": final["reserved_bytes"]["all"]["current"],
            "segment_allocs": counts["segment_alloc"] + counts["segment_map"],
            "segment_frees": counts["segment_free"] + counts["segment_unmap"],
            "ooms": final["num_ooms"],
            "alloc_retries": final["num_alloc_retries"],
        }

    # ---- one method an operation ----

    def op_a(self, result, name, size, stream):
        result["id"], result["size"] = name, int(size)
        self.on(int(stream))
        self.tensors[name] = tensor = self.torch.empty(int(size), dtype=self.torch.uint8, device="cuda")
        result["addr"] = tensor.data_ptr()

    def live(self, result, name):
        result["id"] = name
        tensor = self.tensors.get(name)
        if tensor is None:
            result["error"] = "not live"
        else:
            result["addr"] = tensor.data_ptr()
        return tensor

    def op_f(self, result, name):
        if self.live(result, name) is not None:
            del self.tensors[name]

    def op_r(self, result, name, stream):
        tensor = self.live(result, name)
        if tensor is not None:
            tensor.record_stream(self.stream(int(stream)))

    def op_e(self, result):
        self.torch.cuda.empty_cache()

    def op_p(self, result, fraction):
        self.torch.cuda.set_per_process_memory_fraction(float(fraction), 0)

    def op_s(self, result, stream=None):
        if stream is None:
            self.torch.cuda.synchronize()
        else:
            self.stream(int(stream)).synchronize()
        for one in self.streams if stream is None else [self.stream(int(stream))]:
            self.core.gpucast_vgpu_finish_stream(one.cuda_stream)  # ends holds too

    def op_k(self, result, stream=None):
        pass

    def op_h(self, result, stream):
        self.core.gpucast_vgpu_hold_stream(self.stream(int(stream)).cuda_stream)

    def op_w(self, result, stream):
        self.core.gpucast_vgpu_finish_stream(self.stream(int(stream)).cuda_stream)

    def op_pb(self, result, pool, stream=None):
        if stream is None:
            self.raw._cuda_beginAllocateToPool(0, (0, int(pool)))
        else:
            self.on(int(stream))
            self.raw._cuda_beginAllocateCurrentStreamToPool(0, (0, int(pool)))

    def op_pe(self, result, pool):
        end = getattr(self.raw, "_cuda_endAllocateToPool", None) or self.raw._cuda_endAllocateCurrentStreamToPool
        end(0, (0, int(pool)))

    def op_pr(self, result, pool):
        self.raw._cuda_releasePool(0, (0, int(pool)))


def write_expected(path, results, segments, summary):
    with open_text(path, "w") as file:
        for record in [*results, {"segments": segments}, {"summary": summary}]:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


PROFILE = """total_memory_bytes = {capacity_bytes}
context_bytes = 0
enforce_capacity = 1
ascending_addresses = {ascending}
driver_version = 13000
runtime_version = {runtime_version}
"""


class Driver:
    """Runs sequences, each in a child process."""

    def __init__(self):
        self.torch, self.core = import_torch()
        self.version = self.torch.__version__.split("+")[0]
        major, minor = (self.torch.version.cuda.split(".") + ["0"])[:2]
        self.runtime_version = int(major) * 1000 + int(minor) * 10

    def run(self, events, output, alloc_conf=None, capacity_mib=None):
        """The file's comments are the defaults. Raises DriveError if PyTorch itself failed."""
        lines, header = read_events(events)
        if alloc_conf is None:
            alloc_conf = header.get("alloc_conf", "")
        capacity_mib = int(capacity_mib or header.get("capacity_mib", DEFAULT_CAPACITY_MIB))
        with tempfile.TemporaryDirectory() as folder:
            profile, problem = os.path.join(folder, "profile"), os.path.join(folder, "problem")
            ascending = {"ascending": 1, "linux": 0}[header.get("addresses", "ascending")]
            text = PROFILE.format(capacity_bytes=capacity_mib << 20, ascending=ascending, runtime_version=self.runtime_version)
            Path(profile).write_text(text)
            sys.stdout.flush()
            streams = {key: [int(word) for word in header.get(key, "").split()] for key in ("stream_ids", "stream_handles")}
            child = os.fork()
            if child == 0:
                self._in_child(lines, streams, output, alloc_conf, profile, problem)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):  # PyTorch crashed; its events are lost
                with open_text(output, "w") as file:
                    file.write(json.dumps({"stopped": f"signal {os.WTERMSIG(status)}"}) + "\n")
            elif status:
                text = Path(problem).read_text() if os.path.exists(problem) else "no message"
                raise DriveError(f"{events}: {text}")

    def _in_child(self, lines, streams, output, alloc_conf, profile, problem):
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # newer releases report each failed allocation
            warnings.simplefilter("ignore")
            os.environ["GPUCAST_VGPU_PROFILE"] = profile
            os.environ.pop("PYTORCH_ALLOC_CONF", None)
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = alloc_conf
            write_expected(output, *Sequence(self.torch, self.core, lines, streams).run())
            code = 0
        except BaseException as error:  # the parent reports it
            import traceback

            Path(problem).write_text(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        finally:
            os._exit(code)


def serve(driver):
    """One request a line on stdin, one answer a line on stdout: how compare.py uses another Python's PyTorch."""
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not look like an answer
    answer.write(json.dumps({"torch": driver.version}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            driver.run(request["events"], request["output"], request.get("alloc_conf"), request.get("capacity_mib"))
            answer.write("{}\n")
        except DriveError as error:
            answer.write(json.dumps({"error": str(error)}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("events", nargs="?", help="NAME.events.txt, also gzipped")
    parser.add_argument("--alloc-conf", help="PYTORCH_CUDA_ALLOC_CONF; default: the file's '# alloc_conf' line, else none")
    parser.add_argument("--capacity-mib", type=int, help=f"default: the file's '# capacity_mib' line, else {DEFAULT_CAPACITY_MIB}")
    parser.add_argument("-o", "--output", help="NAME.expected.jsonl, gzipped if it ends in .gz")
    parser.add_argument("--serve", action="store_true", help="take requests on stdin, for compare.py")
    arguments = parser.parse_args()
    if not arguments.serve and (arguments.events is None or arguments.output is None):
        parser.error("EVENTS and -o are needed")
    try:
        driver = Driver()
        if arguments.serve:
            serve(driver)
        else:
            driver.run(arguments.events, arguments.output, arguments.alloc_conf, arguments.capacity_mib)
    except DriveError as error:
        sys.exit(f"drive.py: {error}")


if __name__ == "__main__":
    main()

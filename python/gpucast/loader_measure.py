"""How fast a DataLoader gives batches: a few from its dataset, with 0, 1 and 2 workers, in a forked child of the captured process."""

import contextlib
import ctypes
import functools
import mmap
import os
import signal
import sys
import threading
import time
import types
from concurrent import futures

from . import patching, session

_SHARES = ((0, 0.25), (1, 0.45), (2, 1.0))  # workers, their share of the remaining time
_MOST_BATCHES = 2000
_ROWS, _COLUMNS, _HEADER = 512, 6, 8  # a worker's table of doubles in shared memory. Its header: rows, batches, their _io(), time for notes
_IO_EVERY_NS = 5_000_000
_HARD = 2  # omp_pause_hard

# Functions that decode, transform and tokenise, wherever they are imported.
_STAGES = (
    ("decode", "PIL.ImageFile", "ImageFile.load"),
    ("decode", "cv2", "imread"),
    ("decode", "cv2", "imdecode"),
    ("decode", "torchvision.io", "read_image"),
    ("decode", "torchvision.io", "decode_image"),
    ("decode", "torchvision.io", "decode_jpeg"),
    ("decode", "torchaudio", "load"),
    ("decode", "soundfile", "read"),
    ("transform", "torchvision.transforms.transforms", "Compose.__call__"),
    ("transform", "torchvision.transforms.v2", "Transform.__call__"),
    ("transform", "albumentations.core.composition", "BaseCompose.__call__"),
    ("tokenise", "transformers.tokenization_utils_base", "PreTrainedTokenizerBase.__call__"),
    ("tokenise", "tokenizers", "Tokenizer.encode_batch"),
    ("tokenise", "tokenizers", "Tokenizer.encode"),
)
_NAMES = ("collate", "decode", "transform", "tokenise")

_spent = dict.fromkeys(_NAMES, 0)
_open = threading.local()
_table = None  # the table of the fetching worker or process
_tables = {}  # (workers, worker) -> _Table
_workers = 0  # of the measured run
_fetching = False
_files = 0


def run(torch, parts, budget_s, write, team_ended):
    """Writes one dict for each number of workers, then {"end": true}."""
    _let_workers_end()
    _run(torch, parts, time.monotonic() + budget_s, write, team_ended)
    write({"end": True})


def _let_workers_end():
    """PyTorch's handler raises in the running code when we end our own workers. The main thread sets it with the first worker."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def end_team():
    """Ends OpenMP's threads of this thread: they would not survive a fork, and the child would wait for them. False: not possible."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {"/" + line.partition("/")[2].rstrip("\n") for line in file}
    runtimes = [path for path in paths if os.path.basename(path).startswith(("libgomp", "libiomp", "libomp"))]
    return all(ctypes.CDLL(path).omp_pause_resource_all(_HARD) == 0 for path in runtimes)


def _computing(team_ended, function, *args):
    """If OpenMP's team did not end, runs in a new thread, which gets its own team. But a thread also has its own heap, which gives memory
    back sooner: a batch takes up to 8 % longer."""
    if team_ended:
        return function(*args)
    with futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *args).result()


def _run(torch, parts, deadline, write, team_ended):
    cores = len(os.sched_getaffinity(0))
    kept = []  # iterators with killed workers: kept, so that none of their code runs again
    try:
        if torch.get_num_threads() > 1 and patching.safely(_others_work):
            torch.set_num_threads(1)
        _instrument(parts.dataset)
        feed = _Feed(parts.index_sampler)
        for workers, share in _SHARES:
            left_s = deadline - time.monotonic()
            if workers > cores or workers and left_s < 0.2:
                break
            # Workers compute with one thread each, and this process only receives their batches.
            own_team = team_ended or workers > 0
            write(_computing(own_team, _measure, torch, parts, feed, workers, left_s * share, left_s, kept, team_ended))
    except _NoBatch as nothing:
        write({"said": nothing.args[0]})
    except BaseException as error:
        text = next((line for line in str(error).splitlines() if line.strip()), "")
        if "re-initialize CUDA" in str(error):
            text = "its dataset makes tensors on the GPU itself"
        write({"said": f"the DataLoader raised {type(error).__name__}: {text[:300]}"})


def _others_work():
    """Whether other programs use more than half a core. They interrupt the threads of one computation at different times, so all its
    threads wait for the last one, and neither CPU time nor the wait for a CPU shows how long it would take alone."""
    before_ns, begin_ns = _machine_cpu_ns(), time.perf_counter_ns()
    time.sleep(0.05)
    return _machine_cpu_ns() - before_ns > 0.5 * (time.perf_counter_ns() - begin_ns)


class _NoBatch(Exception):
    pass


class _Feed:
    """The loader's batches of indices, one after the other over all runs: no run finds another run's data in the page cache."""

    def __init__(self, source):
        self._source = source
        self._iterator = None

    def __iter__(self):
        fresh = False  # the last run may have taken the last batch
        while True:
            if self._iterator is None:
                self._iterator = iter(self._source)
                fresh = True
            for index in self._iterator:
                fresh = False
                yield index
            self._iterator = None
            if fresh:
                return  # it is empty


def _again(parts, feed, workers, limit_s, torch):
    options = {"num_workers": workers, "collate_fn": parts.collate_fn, "worker_init_fn": parts.worker_init_fn}
    if workers:
        # The script's own prefetch depth makes no difference to a loop that fetches all at once.
        options.update(multiprocessing_context="fork", timeout=max(0.5, limit_s))
    if parts.dataset_kind == 1:
        options.update(batch_size=parts.batch_size if parts.auto_collation else None, drop_last=parts.drop_last)
    elif parts.auto_collation:
        options.update(batch_sampler=feed)
    else:
        options.update(batch_size=None, sampler=feed)
    return torch.utils.data.DataLoader(parts.dataset, **options)


def _measure(torch, parts, feed, workers, soft_s, hard_s, kept, team_ended):
    global _workers, _table
    _workers = workers
    for worker in range(max(1, workers)):
        _tables[workers, worker] = _Table()
    _table = None
    machine_ns = patching.safely(_machine_cpu_ns)
    begin, own_ns = time.perf_counter_ns(), time.process_time_ns()
    arrivals, cpu, batch, problem = [], [], None, ""
    iterator = None
    try:
        iterator = iter(_again(parts, feed, workers, hard_s, torch))
        while len(arrivals) < _MOST_BATCHES:
            cpu_ns = time.thread_time_ns()
            batch = next(iterator, None)
            if batch is None:
                problem = "" if arrivals else "the DataLoader gave no batch"
                break
            cpu.append(time.thread_time_ns() - cpu_ns)
            arrivals.append(time.perf_counter_ns())
            took_s = (arrivals[-1] - begin) / 1e9
            if took_s >= soft_s and (len(arrivals) > 3 * max(1, workers) or took_s >= 0.8 * hard_s):
                break
    except RuntimeError as error:
        if "timed out" not in str(error):
            raise
        problem = f"with {workers} worker{'s' if workers > 1 else ''} no batch came within {hard_s:.1f} s"
    finally:
        took_ns = time.perf_counter_ns() - begin
        own_ns = time.process_time_ns() - own_ns
        kept.append(iterator)
        _let_workers_end()
        for worker in getattr(iterator, "_workers", ()):
            with contextlib.suppress(OSError):
                own_ns += _cpu_ns(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)
    if not arrivals:
        raise _NoBatch(problem)
    others = (patching.safely(_machine_cpu_ns) - machine_ns - own_ns) / took_ns if machine_ns else 0
    tables = [_tables[workers, worker] for worker in range(max(1, workers))]
    noting_ns = sum(table.numbers[7] for table in tables) / max(1, sum(table.numbers[0] for table in tables)) / max(1, workers)
    copied = {"copy_ns": patching.safely(_computing, team_ended, _copy_ns, torch, batch) or 0} if workers == 1 else {}
    return {
        "workers": workers,
        "batches": len(arrivals),
        "start_ns": arrivals[0] - begin,
        "period_ns": max(0, _period_ns(arrivals, begin, workers) - noting_ns),
        "main_cpu_ns": _mean(cpu[1:] or cpu),
        "batch_bytes": _bytes_of(torch, batch),
        "others_cores": round(max(0.0, others), 3),
        "mapped": bool(patching.safely(_maps_data)),
        **copied,
        **_joined(tables),
    }


def _period_ns(arrivals, begin, workers):
    """Times from one batch to the next. Workers begin at the same time and give batches in turns: whole rounds, without the first of each."""
    first = max(1, workers) - 1
    rounds = (len(arrivals) - 1 - first) // max(1, workers)
    if rounds <= 0:
        return (arrivals[-1] - begin) / len(arrivals)
    last = first + rounds * max(1, workers)
    return (arrivals[last] - arrivals[first]) / (last - first)


def _mean(values):
    return sum(values) / len(values) if values else 0


def _tensors_of(torch, value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
        return
    if depth > 8 or isinstance(value, (str, bytes)):
        return
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_of(torch, one, depth + 1)


def _bytes_of(torch, value):
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors_of(torch, value))


def _copy_ns(torch, batch):
    """CPU time of copying a worker's batch to existing memory: the cost of pinning. This process has not touched the batch before."""
    pairs = [(torch.ones_like(tensor), tensor) for tensor in _tensors_of(torch, batch) if tensor.layout == torch.strided]
    begin = time.thread_time_ns()
    for to, tensor in pairs:
        to.copy_(tensor)
    return time.thread_time_ns() - begin


# ---- the cost of a fetch, in any process ----------------------------------------------------------------------------------------------


class _Table:
    """Numbers of one worker, written by it and read here."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 8 * (_HEADER + _ROWS * _COLUMNS))
        self.numbers = memoryview(self._memory).cast("d")
        self.io_begin = None
        self.io_read_ns = self.last_cpu_ns = self.own_ns = self.batches = 0

    def add(self, wall_ns, spent):
        begin_ns = time.perf_counter_ns()
        now_cpu_ns = time.process_time_ns()  # with the thread that hands batches over
        row = int(self.numbers[0])
        if row < _ROWS:
            at = _HEADER + row * _COLUMNS
            cpu_ns = max(0, now_cpu_ns - self.last_cpu_ns - self.own_ns) if row else 0
            for column, value in enumerate((wall_ns, cpu_ns, *spent)):
                self.numbers[at + column] = value
            self.numbers[0] = row + 1
        self.last_cpu_ns = now_cpu_ns
        self._note_io()
        self.own_ns = time.perf_counter_ns() - begin_ns
        if row < _ROWS:
            self.numbers[7] += self.own_ns

    def _note_io(self):
        now_ns = time.perf_counter_ns()
        if self.io_begin is not None:
            self.batches += 1
            if now_ns - self.io_read_ns < _IO_EVERY_NS:
                return
        found = _io()
        self.io_read_ns = now_ns
        if self.io_begin is None:  # after the first batch, which does one-time imports and opens
            self.io_begin = found
            return
        self.numbers[1] = self.batches
        for place, (before, after) in enumerate(zip(self.io_begin, found)):
            self.numbers[2 + place] = after - before

    def rows(self):
        count = int(self.numbers[0])
        every = [list(self.numbers[_HEADER + row * _COLUMNS : _HEADER + (row + 1) * _COLUMNS]) for row in range(count)]
        return every[1:] or every  # the first does imports, opens files and fills caches for the later ones


def _io():
    """Bytes from read(), bytes from a disk, calls, files opened; nanoseconds that this thread waited for a CPU."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/self/io", encoding="ascii") as file:
        for line in file:
            name, _, number = line.partition(":")
            found[name] = int(number)
    queue_ns = 0
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", encoding="ascii") as file:
        queue_ns = int(file.read().split()[1])
    return found.get("rchar", 0), found.get("read_bytes", 0), found.get("syscr", 0), _files, queue_ns


def _maps_data():
    """Files of a megabyte and more that are mapped to memory, without libraries and Python's own files."""
    ours = (sys.prefix, sys.base_prefix, "/dev/", "/usr/", "/proc/", "/sys/", "/memfd:", session.FOLDER)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            span, _, _, _, _, *path = line.split(maxsplit=5)
            low, _, high = span.partition("-")
            path = path[0].strip() if path else ""
            if path.startswith("/") and not path.startswith(ours) and ".so" not in path and int(high, 16) - int(low, 16) >= 1 << 20:
                return True
    return False


def _cpu_ns(pid):
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")


def _machine_cpu_ns():
    """CPU time of all processes on the machine so far."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) * 10**9 // os.sysconf("SC_CLK_TCK")


def _joined(tables):
    rows = [row for table in tables for row in table.rows()]
    if not rows:
        return {}
    stages = {name: _mean([row[2 + place] for row in rows]) for place, name in enumerate(_NAMES)}
    found = {
        "batch_ns": [round(row[0]) for row in rows[:64]],
        "cpu_ns": _mean([row[1] for row in rows if row[1]]),
        "fetch_ns": _mean([row[0] for row in rows]),
        "stages_ns": {name: round(ns) for name, ns in stages.items() if ns > 0},
    }
    batches = sum(table.numbers[1] for table in tables)
    if batches:
        mean = [round(sum(table.numbers[2 + place] for table in tables) / batches, 1) for place in range(5)]
        found["read"] = dict(zip(("bytes", "device_bytes", "calls", "files"), mean))
        found["queue_ns"] = mean[4]
    return found


def _timed(stage, real):
    """Without the time of nested ones."""

    @functools.wraps(real)
    def call(*args, **kwargs):
        stack = _open.__dict__.setdefault("stack", [])
        stack.append(0)
        begin = time.perf_counter_ns()
        try:
            return real(*args, **kwargs)
        finally:
            took = time.perf_counter_ns() - begin
            _spent[stage] += took - stack.pop()
            if stack:
                stack[-1] += took

    return call


def _instrument(dataset):
    from torch.utils.data._utils import fetch

    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = _fetching_timed(kind.fetch)
    for stage, module, name in _STAGES:
        with contextlib.suppress(AttributeError, TypeError):
            owner = sys.modules.get(module, None)
            *path, last = name.split(".")
            for part in path:
                owner = getattr(owner, part)
            if owner is not None:
                setattr(owner, last, _timed(stage, getattr(owner, last)))
    for _ in range(4):  # through Subset and the like
        for name in ("transform", "transforms"):
            function = getattr(dataset, name, None)
            if isinstance(function, (types.FunctionType, types.MethodType, functools.partial)):
                with contextlib.suppress(Exception):
                    setattr(dataset, name, _timed("transform", function))
        dataset = getattr(dataset, "dataset", None)
    sys.addaudithook(_opening)


def _opening(event, args):
    global _files
    if event != "open" or not _fetching:
        return
    path, _, flags = args
    if isinstance(path, (str, bytes)) and not flags & (os.O_WRONLY | os.O_RDWR) and not str(path).startswith(("/proc/", "/dev/", "/sys/")):
        _files += 1


def _fetching_timed(real):
    def fetch(self, index):
        global _table, _fetching
        if _table is None:
            from torch.utils.data import get_worker_info

            worker = get_worker_info()
            _table = _tables.get((_workers, worker.id if worker else 0)) or _Table()
        if not getattr(self.collate_fn, "_gpucast", False):
            self.collate_fn = _timed("collate", self.collate_fn)
            self.collate_fn._gpucast = True
        for name in _NAMES:
            _spent[name] = 0
        _fetching = True
        begin = time.perf_counter_ns()
        try:
            return real(self, index)
        finally:
            took = time.perf_counter_ns() - begin
            _fetching = False
            _table.add(took, [_spent[name] for name in _NAMES])

    return fetch

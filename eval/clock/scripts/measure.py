"""Measures a step in all the usual ways of benchmark scripts and prints one line of JSON: milliseconds per step."""

import json
import sys
import time

import torch

WARMUP, REPEATS = 3, 10


def measure(step):
    """`step`: one step of the script."""
    if "--steps-only" in sys.argv:  # the steps that `gpucast time` observes
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        return
    if "--trace" in sys.argv:  # into the following folder: the input of traces.py
        trace(step, sys.argv[sys.argv.index("--trace") + 1])
        return
    for _ in range(WARMUP):
        step()
    out = {"events": by_events(step), "wall": by_wall(step), "benchmark": by_benchmark(step)}
    out["do_bench"] = by_do_bench(step)
    out["tqdm"] = by_tqdm(step)
    out["profiler"] = None if "--no-profiler" in sys.argv else by_profiler(step)
    print(json.dumps(out), flush=True)


def by_events(step):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    step()  # the queue is filled
    begin.record()
    for _ in range(REPEATS):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / REPEATS


def by_wall(step):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(REPEATS):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / REPEATS


def by_benchmark(step):
    from torch.utils import benchmark

    return 1e3 * benchmark.Timer("step()", globals={"step": step}).timeit(REPEATS).mean


def by_do_bench(step):
    try:
        from triton.testing import do_bench
    except ImportError:
        return None
    return do_bench(step, warmup=1, rep=60, return_mode="mean")


def by_tqdm(step):
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    torch.cuda.synchronize()
    with tqdm(range(REPEATS), mininterval=0) as bar:
        for _ in bar:
            step()
        torch.cuda.synchronize()
        return 1e3 * bar.format_dict["elapsed"] / REPEATS


def by_profiler(step):
    """From the first kernel's begin to the last kernel's end, for consecutive steps."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(REPEATS):
            step()
        torch.cuda.synchronize()
    times = [event.time_range for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    if not times:
        return None
    return (max(time.end for time in times) - min(time.start for time in times)) / 1e3 / REPEATS


def trace(step, folder):
    """Two steps as a run of TensorBoard's profiler plugin, and PyTorch's own summary of them: kernels, copies and fills."""
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

    torch.cuda.synchronize()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=WARMUP, warmup=1, active=2),
        on_trace_ready=tensorboard_trace_handler(folder, worker_name="worker0"),
        profile_memory=True,
        record_shapes=True,
    ) as profiled:
        for _ in range(WARMUP + 3):
            step()
            torch.cuda.synchronize()  # or its work ends in a step of the trace, but its launches are missing
            profiled.step()
    on_card = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    work = [event for event in on_card if not event.is_user_annotation]  # ranges of the script's and the compiler's, on the card
    print(json.dumps({"count": len(work), "microseconds": sum(event.time_range.elapsed_us() for event in work)}), flush=True)

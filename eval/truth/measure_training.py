#!/usr/bin/env python3
"""Whole training steps on a real card: time, memory, power, how full the card is; and pairs of trainings side by side. For eval/truth.

    python measure_training.py -o DIR [--only steps,occupancy,pairs,mps] [--minutes 3,0.8,1.5,1]

Each job of training_job.py runs in a process of its own. Some processes prepare at once; one at a time has the card. DIR gets:
- steps.jsonl: a row a job: the first steps, then steps in a row for about a second, with energy (NVML) and the counters that DCGM shows
  (NVML's GPM: SM active, SM occupancy, tensor cores, device memory); and the kernels of one step by PyTorch's profiler.
- occupancy.csv, occupancy.json: the kernels of one step of some jobs under Nsight Compute.
- pairs.jsonl, mps.jsonl: steps a second of each job alone and with each other job at the same time, by time slices and under MPS.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import measure_on_gpu
import training_job

PARTS = ("steps", "occupancy", "pairs", "mps")
GPM = {
    1: "graphics_active",
    2: "sm_active",
    3: "sm_occupancy",
    5: "tensor_active",
    10: "memory_active",
    12: "fp32_active",
    13: "fp16_active",
}


def job(model, batch, precision="default", optimizer="AdamW", **more):
    return {"model": model, "batch": batch, "precision": precision, "optimizer": optimizer, **more}


def random_nets(seed=3, count=8):
    """MLPs and CNNs as GPUMemNet drew them: a width that stays, falls or grows; PyTorch's default precision; Adam; loss.item() twice a step."""
    rng, jobs = random.Random(seed), []
    for _ in range(count):
        first, last, depth = rng.randrange(400, 4000), rng.randrange(100, 1000), rng.randrange(3, 11)
        widths = [round(first + (last - first) * i / depth) for i in range(depth + 1)]
        if rng.random() < 0.3:
            widths = [first, *([rng.randrange(500, 4000)] * (depth - 1)), last]
        jobs.append(job("mlp:" + ",".join(map(str, widths)), rng.randrange(4, 1000), optimizer="Adam", items=True))
        channels, depth = rng.randrange(16, 80), rng.randrange(3, 10)
        growth = rng.choice((1.0, 1.2, 1.4))
        widths = [rng.choice((1, 3)), *(round(channels * growth**i) for i in range(depth))]
        jobs.append(
            job("cnn:" + ",".join(map(str, widths)), rng.randrange(8, 65), optimizer="Adam", items=True, size=rng.randrange(32, 120))
        )
    return jobs


def tuned(model, batch, **more):
    """The same training with what `gpucast advise` may change."""
    base = job(model, batch, "amp_bf16", **more)
    changes = ({}, {"optimizer": "AdamW fused"}, {"parts": 2}, {"parts": 4}, {"checkpointing": True}, {"checkpointing": True, "parts": 2})
    return [{**base, **change} for change in changes]


VISION = [
    job("torchvision:resnet50", 64, "default", "SGD"),
    job("torchvision:resnet50", 128, "amp_fp16", "SGD", channels_last=True),
    job("timm:vit_base_patch16_224", 128, "amp_bf16"),
    job("torchvision:vgg16", 64, "default", "SGD"),
    job("timm:convnext_base", 64, "amp_bf16", channels_last=True),
    job("torchvision:resnext101_32x8d", 32, "default", "SGD"),
    job("timm:swin_base_patch4_window7_224", 64, "amp_bf16"),
    job("torchvision:densenet121", 64, "default", "SGD"),
    job("torchvision:resnet18", 256, "fp32", "SGD"),
    job("torchvision:efficientnet_v2_s", 64, "amp_bf16", "SGD", channels_last=True),
    job("torchvision:resnet152", 32, "tf32", "SGD"),
    job("timm:mixer_b16_224", 128, "amp_fp16"),
    job("torchvision:mobilenet_v3_large", 256, "amp_bf16", "SGD", channels_last=True),
    job("timm:convnext_tiny", 64, "default"),
    job("timm:regnety_032", 128, "amp_bf16", "SGD", channels_last=True),
    job("torchvision:deeplabv3_resnet50", 8, "amp_fp16", "SGD", size=512),
    job("timm:efficientnet_b3", 64, "amp_fp16", "SGD"),
    job("timm:maxvit_tiny_tf_224", 64, "amp_bf16"),
    job("timm:xcit_small_12_p16_224", 64, "default"),
]
TEXT = [
    job("transformers:gpt2", 16, "amp_bf16", "AdamW fused", length=1024),
    job("transformers:llama-1b", 4, "bf16", length=2048),
    job("transformers:bert-base", 64, "amp_fp16", length=128),
    job("transformers:qwen3-0.6b", 4, "bf16", length=2048),
    job("transformers:llama-3b", 4, "bf16", length=2048, lora=16),
    job("transformers:gpt2-large", 4, "bf16", length=1024, checkpointing=True),
    job("transformers:bert-large", 16, "amp_bf16", length=512),
    job("transformers:gemma3-1b", 4, "bf16", length=2048),
    job("transformers:t5-base", 16, "default", length=256),
    job("transformers:mixtral-small", 4, "bf16", length=1024),
    job("transformers:whisper-small", 16, "amp_bf16", length=128),
    job("transformers:llama-1b", 8, "bf16", length=2048, checkpointing=True),
    job("transformers:deberta-base", 16, "amp_fp16", length=256),
    job("transformers:wav2vec2-base", 8, "amp_bf16", length=160000),
    job("lstm", 64, "default", length=256),
]
TUNED = [*tuned("transformers:gpt2-medium", 16, length=1024), *tuned("timm:vit_large_patch16_224", 128)]


def interleaved(*lists):
    """One of each in turn, so that what the time cuts off is of all kinds."""
    rows = []
    for i in range(max(map(len, lists))):
        rows += [jobs[i] for jobs in lists if i < len(jobs)]
    return rows


STEPS = interleaved(VISION, TEXT, random_nets(), TUNED)
SIDE_BY_SIDE = [
    job("torchvision:resnet50", 32, "amp_fp16", "SGD", channels_last=True),
    job("torchvision:resnet18", 16, "default", "SGD"),
    job("transformers:gpt2", 4, "amp_bf16", "AdamW fused", length=512),
    job("transformers:bert-base", 16, "amp_fp16", length=128),
    job("timm:vit_base_patch16_224", 32, "amp_bf16"),
    job("lstm", 64, "default", length=128),
    job("torchvision:mobilenet_v3_large", 64, "default", "SGD"),
    job("mlp:2048,4096,4096,1000", 256, "default", "Adam"),
    job("cnn:3,48,64,96,128", 32, "default", "Adam", size=96),
]
PROFILED = [VISION[0], VISION[1], VISION[3], VISION[4], VISION[9], TEXT[0], TEXT[2], TEXT[7], TEXT[14], *random_nets()[:10]]


class Counters:
    """Energy and GPM of the card between two moments; None where the driver does not say."""

    def __init__(self):
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.card = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.begin = None

    def _sample(self):
        sample = None
        with contextlib.suppress(Exception):
            sample = self.nvml.nvmlGpmSampleAlloc()
            self.nvml.nvmlGpmSampleGet(self.card, sample)
        energy = None
        with contextlib.suppress(Exception):
            energy = self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.card)
        return time.monotonic(), energy, sample

    def start(self):
        self.begin = self._sample()

    def stop(self):
        (began, energy, sample), (ended, energy_after, sample_after) = self.begin, self._sample()
        row = {"window_s": round(ended - began, 4), "energy_mj": None if energy is None else energy_after - energy}
        try:
            ask = self.nvml.c_nvmlGpmMetricsGet_t()
            ask.version, ask.numMetrics, ask.sample1, ask.sample2 = 1, len(GPM), sample, sample_after
            for i, number in enumerate(GPM):
                ask.metrics[i].metricId = number
            self.nvml.nvmlGpmMetricsGet(ask)
            row["gpm"] = {name: round(ask.metrics[i].value, 3) for i, name in enumerate(GPM.values()) if ask.metrics[i].nvmlReturn == 0}
        except Exception as error:
            row["gpm_error"] = f"{type(error).__name__}: {error}"[:200]
        for name, call in (
            ("sm_clock_mhz", lambda: self.nvml.nvmlDeviceGetClockInfo(self.card, 1)),
            ("power_mw", lambda: self.nvml.nvmlDeviceGetPowerUsage(self.card)),
        ):
            with contextlib.suppress(Exception):
                row[name] = call()
        return row


@contextlib.contextmanager
def card_alone(gate):
    """The card for this process alone, among those that ask with the same file."""
    with open(gate, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def import_all(job):
    import torch  # noqa: F401

    for name in ("torchvision", "timm", "transformers", "peft"):
        if job["model"].startswith(name) or (name == "peft" and job.get("lora")):
            __import__(name)
    if job["model"].startswith("transformers"):
        import transformers

        getattr(transformers, training_job.TRANSFORMERS[job["model"].partition(":")[2]][0])


def measure_job(job, gate, seconds):
    """The row of a job. The model is made while another process has the card."""
    began = time.monotonic()
    import_all(job)
    prepare = training_job.make_model
    made = None if training_job.made_on_card(job) else prepare(job)
    training_job.make_model = lambda job: made or prepare(job)
    imported = time.monotonic() - began
    with card_alone(gate):
        return {"part": "steps", "job": job, "host_seconds": round(imported, 2), **measure_steps(job, seconds)}


def measure_steps(job, seconds):
    import torch

    nvml = measure_on_gpu.Nvml()
    row = {"device_used_before_bytes": nvml.used_bytes()}
    moments = [time.monotonic()]
    step = training_job.make_step(job)
    torch.cuda.synchronize()
    moments.append(time.monotonic())
    for index in range(5):
        step()
        torch.cuda.synchronize()
        moments.append(time.monotonic())
        if index == 2:
            row["max_memory_reserved_3_steps_bytes"] = torch.cuda.max_memory_reserved()
            row["max_memory_allocated_3_steps_bytes"] = torch.cuda.max_memory_allocated()
    row["to_card_seconds"] = round(moments[1] - moments[0], 4)
    row["first_step_ms"] = [round(1e3 * (b - a), 3) for a, b in zip(moments[1:], moments[2:])]
    count = max(6, min(300, round(seconds / min(b - a for a, b in zip(moments[2:], moments[3:])))))
    counters = Counters()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    counters.start()
    cpu, began = time.process_time(), time.monotonic()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    issued = time.monotonic() - began
    torch.cuda.synchronize()
    row |= {"steps": count, "wall_ms": round(1e3 * (time.monotonic() - began) / count, 4), "issue_ms": round(1e3 * issued / count, 4)}
    row["cpu_ms"] = round(1e3 * (time.process_time() - cpu) / count, 4)
    row |= counters.stop()
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    row["step_ms"] = {f"p{q}": round(times[min(len(times) - 1, len(times) * q // 100)], 4) for q in (10, 50, 90)}
    stats = torch.cuda.memory_stats()
    row |= {
        "max_memory_reserved_bytes": torch.cuda.max_memory_reserved(),
        "max_memory_allocated_bytes": torch.cuda.max_memory_allocated(),
        "allocations": stats["allocation.all.allocated"],
        "segments": stats["segment.all.allocated"],
        "device_used_bytes": nvml.used_bytes(),
    }
    if job not in TUNED:
        row["kernels"], row["busy_ms"] = kernels_of(step)
    return row


def kernels_of(step):
    """([name, count, us, grid, block, registers, shared bytes] of one step, same launches in one; the time in which a kernel runs, ms)"""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="measure_training_") as folder:
        path = pathlib.Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(errors="replace"), strict=False)["traceEvents"]
    groups, busy, end = collections.defaultdict(list), 0.0, 0.0
    for event in sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"]):
        args = event["args"]
        shape = (event["name"], *(json.dumps(args.get(key)) for key in ("grid", "block", "registers per thread", "shared memory")))
        groups[shape].append(event["dur"])
        busy += max(0.0, event["ts"] + event["dur"] - max(event["ts"], end))
        end = max(end, event["ts"] + event["dur"])
    rows = [[name, len(us), round(sum(us), 2), *map(json.loads, more)] for (name, *more), us in groups.items()]
    return sorted(rows, key=lambda row: -row[2]), round(busy / 1e3, 4)


# ---- processes ---------------------------------------------------------------------------------------------------------------------


def child(words, env=None, **options):
    more = {**os.environ, "OMP_NUM_THREADS": "2", **(env or {})}
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), *words], env=more, text=True, **options)


def steps(folder, deadline, source, at_once=5):
    gate = folder / "gate"
    waiting, running = list(STEPS), []
    with open(folder / "steps.jsonl", "a") as out:
        out.write(json.dumps(source) + "\n")
        while waiting or running:
            while waiting and len(running) < at_once and time.monotonic() < deadline:
                next_job = waiting.pop(0)
                running.append(
                    (next_job, child(["--job", json.dumps(next_job)], {"GATE": str(gate)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                )
            if not running:
                break
            next_job, process = running.pop(0)
            try:
                text, errors = process.communicate(timeout=max(20, deadline + 20 - time.monotonic()))
                row = json.loads(text.strip().splitlines()[-1])
            except subprocess.TimeoutExpired:
                process.kill()
                row = {"part": "steps", "job": next_job, "error": "not done in time"}
            except (IndexError, ValueError):
                row = {"part": "steps", "job": next_job, "error": (errors.strip().splitlines() or [str(process.returncode)])[-1][:400]}
            out.write(json.dumps(row) + "\n")
            out.flush()
            said = (
                row.get("error")
                or f"{row['step_ms']['p50']} ms, busy {row.get('busy_ms')}, {row['max_memory_reserved_bytes'] >> 20} MiB, {row.get('gpm') or row.get('gpm_error')} {row['energy_mj']} mJ"
            )
            print(next_job["model"][:40], next_job["batch"], next_job["precision"], said, file=sys.stderr, flush=True)
    print(f"steps: {len(waiting)} jobs left out", file=sys.stderr, flush=True)


def resident(job):
    """Keeps the job on the card and makes steps when told so by a line "FROM TO" (unix times): prints the times of steps that ended."""
    import torch

    step = training_job.make_step(job)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    print(json.dumps({"ready": torch.cuda.max_memory_reserved()}), flush=True)
    for line in sys.stdin:
        begin, end = map(float, line.split())
        time.sleep(max(0.0, begin - time.time()))
        events, ended = collections.deque(), []
        while time.time() < end:
            step()
            event = torch.cuda.Event()
            event.record()
            events.append(event)
            if len(events) > 2:
                events.popleft().synchronize()
                ended.append(round(time.time() - begin, 5))
        torch.cuda.synchronize()
        print(json.dumps(ended), flush=True)


def pairs(folder, name, deadline, source, env=None, window_s=1.5, which=None):
    """Each job alone, then each pair. A step's time is the mean between the first and the last end in the window's last four fifths."""
    jobs = [SIDE_BY_SIDE[i] for i in which or range(len(SIDE_BY_SIDE))]
    processes = [
        child(["--resident", json.dumps(one)], env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for one in jobs
    ]
    order = [(i,) for i in range(len(jobs))]
    together = [(i, k) for i in range(len(jobs)) for k in range(i + 1, len(jobs))]
    random.Random(1).shuffle(together)
    counters = Counters()
    try:
        ready = [json.loads(process.stdout.readline() or "{}") for process in processes]
        print(f"{name}: {ready}", file=sys.stderr, flush=True)
        with open(folder / f"{name}.jsonl", "a") as out:
            out.write(json.dumps({**source, "ready": ready}) + "\n")
            for members in [*order, *together]:
                if time.monotonic() > deadline:
                    break
                if any("ready" not in ready[i] for i in members):
                    continue
                begin = time.time() + 0.05
                for i in members:
                    processes[i].stdin.write(f"{begin} {begin + window_s}\n")
                    processes[i].stdin.flush()
                time.sleep(0.05 + 0.2 * window_s)
                counters.start()
                time.sleep(0.75 * window_s)
                row = counters.stop()
                ends = [json.loads(processes[i].stdout.readline()) for i in members]
                row |= {"part": name, "jobs": [jobs[i] for i in members], "step_ms": [], "ends": []}
                for times in ends:
                    kept = [t for t in times if 0.2 * window_s <= t <= window_s]
                    row["step_ms"].append(round(1e3 * (kept[-1] - kept[0]) / (len(kept) - 1), 4) if len(kept) > 2 else None)
                    row["ends"].append(len(kept))
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(name, [one["model"][:24] for one in row["jobs"]], row["step_ms"], row.get("gpm"), file=sys.stderr, flush=True)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def mps(folder, deadline, source):
    control = shutil.which("nvidia-cuda-mps-control") or next(
        (p for p in ("/usr/local/nvidia/bin/nvidia-cuda-mps-control", "/usr/bin/nvidia-cuda-mps-control") if os.path.exists(p)), None
    )
    if control is None:
        print("mps: no nvidia-cuda-mps-control", file=sys.stderr, flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="mps_") as place:
        env = {"CUDA_MPS_PIPE_DIRECTORY": place, "CUDA_MPS_LOG_DIRECTORY": place}
        started = subprocess.run([control, "-d"], env={**os.environ, **env}, capture_output=True, text=True, timeout=20)
        print("mps:", started.returncode, started.stderr[-300:], file=sys.stderr, flush=True)
        try:
            pairs(folder, "mps", deadline, source, env, which=[0, 1, 2, 3, 4, 7])
        finally:
            subprocess.run([control], input="quit\n", env={**os.environ, **env}, text=True, timeout=20)
            for log in pathlib.Path(place).glob("*.log"):
                print(log.name, log.read_text(errors="replace")[-500:], file=sys.stderr, flush=True)


METRICS = (
    "gpu__time_duration.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
    "launch__cluster_dim_x",
    "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)


def profiled(until):
    """One step of each job between profiler.start() and stop(); spin kernels, also profiled, stand between the jobs."""
    import torch

    done = []
    for one in PROFILED:
        if time.time() > until:
            break
        step = training_job.make_step(one)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.cuda._sleep(1000)
        step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        done.append(one)
        print(json.dumps(one), flush=True)
        del step
        torch.cuda.empty_cache()
    return done


def occupancy(folder, deadline, source):
    ncu = shutil.which("ncu") or next(iter(sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)), None)
    if ncu is None:
        print("occupancy: no ncu", file=sys.stderr, flush=True)
        return
    command = [str(ncu), "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--replay-mode", "kernel"]
    command += ["--target-processes", "application-only", "--metrics", ",".join(METRICS), "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--log-file", str(folder / "occupancy.csv"), sys.executable, os.path.abspath(__file__)]
    command += ["--profiled", str(time.time() + deadline - time.monotonic())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline + 40 - time.monotonic())
        jobs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        (folder / "occupancy.json").write_text(json.dumps({"source": source, "jobs": jobs, "log": done.stderr[-2000:]}))
        print(f"occupancy: {len(jobs)} jobs", done.stderr[-500:], file=sys.stderr, flush=True)
    except subprocess.TimeoutExpired as late:
        print("occupancy: not done in time", str(late.stdout)[-300:], file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=pathlib.Path, help="a folder for the rows; existing rows are kept")
    parser.add_argument("--only", default=",".join(PARTS), help="parts (default: %(default)s)")
    parser.add_argument("--minutes", default="3,0.8,1.5,1", help="of each part (default: %(default)s)")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.9, help=argparse.SUPPRESS)
    parser.add_argument("--resident", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--profiled", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure_job(args.job, os.environ["GATE"], args.seconds)))
        return
    if args.resident:
        resident(args.resident)
        return
    if args.profiled:
        profiled(args.profiled)
        return
    args.output.mkdir(parents=True, exist_ok=True)
    (source,) = measure_on_gpu.child(["--part", "provenance"], 120, [])
    source = {"part": "provenance", **source}
    print(source, file=sys.stderr, flush=True)
    for part, minutes in zip(args.only.split(","), args.minutes.split(",")):
        deadline = time.monotonic() + 60 * float(minutes)
        began = time.monotonic()
        try:
            if part == "steps":
                steps(args.output, deadline, source)
            elif part == "occupancy":
                occupancy(args.output, deadline, source)
            elif part == "pairs":
                pairs(args.output, "pairs", deadline, source)
            else:
                mps(args.output, deadline, source)
        except Exception as error:
            print(f"{part}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

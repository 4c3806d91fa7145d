"""The virtual GPU's core, runtime, driver and NVML under real PyTorch programs, without the capture layer."""

import os
import subprocess
import sys

import pytest
import test_vgpu_libraries as libraries_tests

run, server = libraries_tests.run, libraries_tests.server  # fixtures
MIB = 2**20
RTX3060_BYTES = 12622168064


def device_bytes(done):
    """What is allocated on the device after each allocation and release that the log names."""
    live, now, history = {}, 0, []
    for event in done.events:
        if event[0] == "device_alloc":
            assert event[1] not in live, "an address is given out once"
            live[event[1]] = event[2]
            now += event[2]
        elif event[0] == "device_free":
            assert live.pop(event[1]) == event[2]
            now -= event[2]
        history.append(now)
    return history


def kernels(done):
    names = {event[1]: event[2] for event in done.events if event[0] == "kernel_name"}
    return [names[event[1]] for event in done.events if event[0] == "kernel"]


# ---- The card ------------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_properties_are_those_of_the_profile(run):
    done = run("""
p = torch.cuda.get_device_properties(0)
say("name", p.name); say("capability", (p.major, p.minor)); say("sms", p.multi_processor_count); say("total", p.total_memory)
say("warp", p.warp_size); say("regs", p.regs_per_multiprocessor); say("threads", p.max_threads_per_multi_processor)
say("l2", p.L2_cache_size); say("count", torch.cuda.device_count()); say("available", torch.cuda.is_available())
say("bf16", torch.cuda.is_bf16_supported()); say("free_total", torch.cuda.mem_get_info())
""")
    assert done.printed["name"] == "NVIDIA GeForce RTX 3060"
    assert done.printed["capability"] == "(8, 6)"
    assert (done.number("sms"), done.number("total"), done.number("count")) == (28, RTX3060_BYTES, 1)
    assert (done.number("warp"), done.number("regs"), done.number("threads")) == (32, 65536, 2048)
    assert done.printed["available"] == done.printed["bf16"] == "True"
    assert done.printed["free_total"].endswith(f", {RTX3060_BYTES})")


def test_nvidias_own_libraries_are_not_loaded(run):
    """Also where their wheels are installed."""
    done = run("""
torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
say("theirs", sorted(p for p in paths if "/nvidia/" in p))
say("ours", sum("/vgpu/" in p for p in paths))
""")
    assert done.printed["theirs"] == "[]"
    assert done.number("ours") >= 15


@pytest.mark.once
def test_nvml_agrees_with_the_runtime(run):
    done = run(
        """
class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]
say("count", torch.cuda.device_count())
x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
card, memory, count, processes, name = ctypes.c_void_p(), Memory(), ctypes.c_uint(4), (Process * 4)(), ctypes.create_string_buffer(96)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == 0
assert (memory.free, memory.total) == torch.cuda.mem_get_info() and memory.used == memory.total - memory.free
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), processes) == 0
assert (count.value, processes[0].pid, processes[0].used) == (1, os.getpid(), memory.used)
assert nvml.nvmlDeviceGetName(card, name, 96) == 0
assert nvml.nvmlDeviceGetName(card, name, 5) == 7, "no room"
say("name", name.value.decode())
""",
        environment={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
    )
    assert done.number("count") == 1
    assert done.printed["name"] == "NVIDIA GeForce RTX 3060"


# ---- Memory ----------------------------------------------------------------------------------------------------------------------


def test_the_log_accounts_for_what_pytorch_reserves(run):
    done = run("""
blocks = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 5, 30, 100, 3)]
del blocks[2]
torch.cuda.empty_cache()
more = torch.empty(25 << 20, dtype=torch.uint8, device="cuda")
say("now", torch.cuda.memory_reserved())
""")
    history = device_bytes(done)
    assert max(history) == done.number("reserved") == [r for r in done.records if r["record"] == "vgpu_end"][0]["peak_device_bytes"]
    assert history[-1] == done.number("now")


def test_segments_lie_as_linux_drivers_place_them(run):
    done = run("""
sizes = (30, 20, 40, 1, 12)
blocks = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in sizes]
""")
    placed = [(event[1], event[2]) for event in done.events if event[0] == "device_alloc"]
    assert [size // MIB for _, size in placed] == [30, 20, 40, 2, 12]
    first = placed[0][0]
    assert first % (32 * MIB) == 0
    # 32 MiB ranges, each below the last; 40 MiB take two; 2 and 12 MiB go to the lowest place where they fit.
    assert [(first - address) // MIB for address, _ in placed] == [0, 32, 96, 96 - 40, 96 - 42]


def test_expandable_segments(run):
    done = run(
        """
blocks = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
say("mapped", torch.cuda.memory_reserved())
del blocks[1:4]
torch.cuda.empty_cache()
say("kept", torch.cuda.memory_reserved())
say("device", torch.cuda.get_device_properties(0).total_memory - torch.cuda.mem_get_info()[0])
say("context", torch.cuda.get_device_properties(0).total_memory - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved())
again = torch.empty(70 << 20, dtype=torch.uint8, device="cuda")
say("again", torch.cuda.memory_reserved())
del again, blocks
torch.cuda.empty_cache()
say("end", torch.cuda.memory_reserved())
say("left", torch.cuda.get_device_properties(0).total_memory - torch.cuda.mem_get_info()[0])
""",
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )
    assert (done.number("mapped"), done.number("kept"), done.number("again")) == (160 * MIB, 80 * MIB, 140 * MIB)
    assert done.number("end") == 0
    assert done.number("left") == done.number("context"), "all physical memory was returned"
    assert max(device_bytes(done)) == 160 * MIB


def test_cuda_malloc_async(run):
    done = run(
        """
say("backend", torch.cuda.get_allocator_backend())
x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
say("used", torch.cuda.memory_allocated()); say("held", torch.cuda.memory_reserved())
del x
torch.cuda.synchronize()
say("unused", torch.cuda.memory_allocated()); say("kept", torch.cuda.memory_reserved())
torch.cuda.empty_cache()
say("trimmed", torch.cuda.memory_reserved())
""",
        environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    )
    assert done.printed["backend"] == "cudaMallocAsync"
    assert (done.number("used"), done.number("held")) == (30 * MIB, 32 * MIB)
    assert (done.number("unused"), done.number("kept"), done.number("trimmed")) == (0, 32 * MIB, 0)


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_capacity_is_real_when_enforced(run, monkeypatch, conf):
    monkeypatch.setitem(libraries_tests.CARDS, "small", {**libraries_tests.CARDS["sm_86"], "capacity_bytes": 10**9, "enforce_capacity": 1})
    done = run(
        """
blocks = []
try:
    while True:
        blocks.append(torch.empty(100_000_000, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    say("message", str(error).splitlines()[0])
say("blocks", len(blocks))
say("free", torch.cuda.mem_get_info()[0]); say("held", torch.cuda.memory_reserved())
say("retries", torch.cuda.memory_stats()["num_alloc_retries"]); say("ooms", torch.cuda.memory_stats()["num_ooms"])
blocks.clear()
torch.cuda.empty_cache()
say("after", torch.cuda.mem_get_info()[0])
torch.ones(4, device="cuda").cpu()
""",
        card="small",
        environment={"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {},
    )
    assert done.number("blocks") == 9
    assert done.number("free") == 10**9 - done.number("held") < 100 * MIB
    assert "Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 11.76 GiB" in done.printed["message"]
    assert (done.number("retries"), done.number("ooms")) == (1, 1)
    assert done.number("after") == 10**9


def test_an_uncapped_run_goes_beyond_the_card(run):
    done = run("""
blocks = [torch.empty(80 << 30, dtype=torch.uint8, device="cuda") for _ in range(20)]
say("free", torch.cuda.mem_get_info()[0])
try:
    torch.empty(1 << 51, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    say("absurd", "refused")
""")
    assert done.number("reserved") == 20 * 80 * 2**30
    assert done.number("free") == 0
    assert done.printed["absurd"] == "refused"


def test_the_fraction_of_a_process_is_pytorchs_own_limit(run):
    done = run("""
torch.cuda.set_per_process_memory_fraction(0.1)
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    say("message", str(error).splitlines()[0])
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
""")
    assert "1.18 GiB allowed" in done.printed["message"]


def test_memory_history_and_snapshot(run):
    done = run("""
torch.cuda.memory._record_memory_history()
x = torch.empty(5 << 20, device="cuda")
del x
torch.cuda.empty_cache()
trace = torch.cuda.memory._snapshot()["device_traces"][0]
say("actions", [e["action"] for e in trace])
say("frames", any(f["name"] == "<module>" for f in trace[0]["frames"]))
""")
    assert done.printed["actions"] == "['segment_alloc', 'alloc', 'free_requested', 'free_completed', 'segment_free']"
    assert done.printed["frames"] == "True"


# ---- Work ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["foreach=True", "foreach=False", "fused=True", "capturable=True"])
def test_training_with_every_kind_of_adam(run, options):
    done = run(f"""
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
parameters = sum(p.numel() for p in model.parameters())
optimizer = torch.optim.Adam(model.parameters(), {options})
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(32, 256, device="cuda")), torch.randint(10, (32,), device="cuda")).backward()
    optimizer.step()
say("parameters", parameters)
""")
    assert done.number("allocated") >= 4 * 4 * done.number("parameters"), "parameters, gradients and two states"
    names = kernels(done)
    assert any("multi_tensor_apply" in name for name in names) == ("foreach=False" not in options)
    assert all(name.startswith("_Z") for name in names), "mangled names"
    grids = [event[2:8] for event in done.events if event[0] == "kernel"]
    assert all(min(grid) >= 1 for grid in grids)


def test_streams_and_events(run):
    done = run("""
s = torch.cuda.Stream(); begin = torch.cuda.Event(enable_timing=True); end = torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(s):
    begin.record(); x = torch.ones(1000, device="cuda") * 2; end.record()
    x.record_stream(torch.cuda.default_stream())
torch.cuda.default_stream().wait_stream(s)
end.synchronize()
say("elapsed", round(begin.elapsed_time(end), 3)); say("query", s.query() and end.query())
say("stream", s.cuda_stream)
high = torch.cuda.Stream(priority=-1); say("priority", high.priority)
address = x.data_ptr(); del x
say("reused", torch.ones(1000, device="cuda").data_ptr() != address)
say("external", torch.cuda.ExternalStream(s.cuda_stream).query())
""")
    assert done.printed["elapsed"] == "0.201", "two kernels of 0.1 ms on the virtual clock, in every run"
    assert done.printed["query"] == done.printed["external"] == "True"
    assert done.number("priority") < 0
    on_stream = [event for event in done.events if event[0] == "kernel" and event[-2] == done.number("stream")]
    assert len(on_stream) == 2


def test_small_values_survive_copies_and_large_ones_are_zeros(run):
    done = run("""
small = torch.arange(10).pin_memory()
assert small.is_pinned()
there = small.to("cuda", non_blocking=True)
torch.cuda.synchronize()
say("back", there.tolist()); say("item", torch.tensor(7.5, device="cuda").item())
say("added", (there + 1).tolist()); say("computed", (there * 2).tolist())
say("large", torch.ones(100_000).cuda().cpu().sum().item())
p = torch.empty(1000, pin_memory=True); p.copy_(torch.ones(1000, device="cuda"), non_blocking=True); say("into", p.sum().item())
""")
    assert done.printed["back"] == str(list(range(10)))
    assert done.printed["item"] == "7.5"
    # Sizes of objects go through sums of whole numbers (src/vgpu/core/kernel_values.cc); little else is computed.
    assert done.printed["added"] == str(list(range(1, 11)))
    assert done.printed["computed"] == str([0] * 10)
    assert done.printed["large"] == done.printed["into"] == "0.0"
    assert {event[1] for event in done.events if event[0] == "memcpy"} == {1, 2}


def test_cuda_graphs(run):
    done = run("""
static = torch.zeros(100, device="cuda"); layer = nn.Linear(256, 256).cuda(); y = torch.zeros(8, 256, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        (static * 2).relu(); layer(y)
torch.cuda.current_stream().wait_stream(side)
core.gpucast_vgpu_mark(1)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = (static * 2).relu()
    layer(y)
core.gpucast_vgpu_mark(2)
graph.replay(); graph.replay()
core.gpucast_vgpu_mark(3)
torch.cuda.make_graphed_callables(nn.Linear(256, 256).cuda(), (torch.randn(8, 256, device="cuda", requires_grad=True),))(
    torch.randn(8, 256, device="cuda", requires_grad=True)).sum().backward()
say("pool", torch.cuda.memory_reserved())
graph.reset()
""")
    marks = [i for i, event in enumerate(done.events) if event[0] == "vgpu_mark"]
    captured, replayed = done.events[marks[0] : marks[1]], done.events[marks[1] : marks[2]]
    names = {event[1]: event[2] for event in done.events if event[0] == "kernel_name"}
    ran = [names[event[1]] if event[0] == "kernel" else event[2] for event in captured if event[0] in ("kernel", "call")]
    assert all("FillFunctor" in name for name in ran), "capturing runs only PyTorch's preparations outside of it"
    launched = [event[:-1] for event in replayed if event[0] in ("kernel", "call")]
    assert len(launched) >= 6 and launched[: len(launched) // 2] == launched[len(launched) // 2 :]


def test_waiting_inside_a_capture_is_an_error_as_on_a_card(run):
    done = run("""
x = torch.ones(4, device="cuda")
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        (x * 2).sum().item()
except RuntimeError as error:
    say("error", "captur" in str(error))
torch.cuda.synchronize()
say("goes_on", (x * 2).numel())
""")
    assert done.printed["error"] == "True"
    assert done.number("goes_on") == 4


def test_a_card_that_the_wheel_has_no_code_for(run, monkeypatch):
    """CUDA 13's wheels dropped sm_70, CUDA 12.4's do not know sm_120: a real card of these refuses the first kernel."""
    old, new = (7, 0), (12, 0)
    build = libraries_tests.torch_build()
    major, minor = old if build.cuda_major >= 13 else new
    card = {**libraries_tests.CARDS["sm_80"], "compute_major": major, "compute_minor": minor}
    monkeypatch.setitem(libraries_tests.CARDS, "foreign", card)
    done = run(
        """
x = torch.empty(4, device="cuda")
try:
    x.fill_(1)
except RuntimeError as error:
    say("error", str(error).splitlines()[0])
""",
        card="foreign",
    )
    assert "no kernel image is available for execution on the device" in done.printed["error"]


# ---- Processes -------------------------------------------------------------------------------------------------------------------


def test_data_loader_workers_are_undisturbed(run):
    done = run("""
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 3), torch.arange(64))
torch.ones(4, device="cuda")
seen = 0
for a, b in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"):
    assert a.is_pinned()
    seen += a.cuda(non_blocking=True).shape[0]
say("seen", seen)
""")
    assert done.number("seen") == 64


def test_a_forked_child_keeps_its_hands_off_the_log(run, tmp_path):
    done = run(f"""
torch.ones(4, device="cuda")
child = os.fork()
if child == 0:
    os._exit(core.gpucast_vgpu_write_log({os.fsencode(tmp_path / "child")!r}, 0))
say("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.number("code") == 1  # EPERM
    assert not (tmp_path / "child").exists()
    assert kernels(done)


def test_a_child_forked_before_any_use_has_a_log_of_its_own(run, tmp_path):
    done = run(f"""
say("count", torch.cuda.device_count())
child = os.fork()
if child == 0:
    torch.ones(4, device="cuda")
    os._exit(core.gpucast_vgpu_write_log({os.fsencode(tmp_path / "child")!r}, 0))
say("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.number("code") == 0
    assert '["kernel",' in (tmp_path / "child").read_text()


def test_importing_pytorch_uses_nothing(run):
    done = run('say("used", core.gpucast_vgpu_used()); torch.cuda.init(); say("then", core.gpucast_vgpu_used())')
    assert (done.number("used"), done.number("then")) == (0, 1)


# ---- What has no answer ------------------------------------------------------------------------------------------------------------


def test_a_call_without_an_answer_is_named_once_and_harmless(run):
    done = run(
        """
cudart = ctypes.CDLL("libcudart.so." + os.environ["VGPU_CUDA"][4:])
for _ in range(3):
    say("code", cudart.cudaMallocArray(0, 0, 0, 0, 0))
say("driver", ctypes.CDLL("libcuda.so.1").cuGreenCtxCreate(0, 0, 0, 0))
torch.ones(4, device="cuda").sum()
""",
        supported=False,
    )
    assert done.printed["code"] == done.printed["driver"] == "801"
    named = {(r["library"], r["name"]): r["count"] for r in done.records if r["record"] == "unsupported"}
    assert named == {("cudart", "cudaMallocArray"): 3, ("cuda", "cuGreenCtxCreate"): 1}


def test_driver_functions_by_name_follow_the_release_asked_for(run):
    done = run("""
driver = ctypes.CDLL("libcuda.so.1")
def ask(name, version):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    code = driver.cuGetProcAddress_v2(name, ctypes.byref(function), version, ctypes.c_ulonglong(0), ctypes.byref(status))
    return code, status.value, function.value
def address(name):
    return ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
assert ask(b"cuMemAlloc", 12000) == (0, 0, address("cuMemAlloc_v2"))
assert ask(b"cuStreamGetCaptureInfo", 12000) == (0, 0, address("cuStreamGetCaptureInfo_v2"))
assert ask(b"cuStreamGetCaptureInfo", 12030) == (0, 0, address("cuStreamGetCaptureInfo_v3"))
assert ask(b"cuMemCreate", 11020) == (0, 0, address("cuMemCreate"))
assert ask(b"cuOfTheFuture", 13000) == (500, 1, None)
""")
    assert done.number("allocated") == 0


def test_the_profile_file_that_is_missing_is_said(gpucast_bin):
    folder = os.path.join(os.path.dirname(gpucast_bin), "../lib/gpucast/vgpu")
    script = (
        f"import ctypes; core = ctypes.CDLL({folder!r} + '/libgpucast_vgpu_core.so', ctypes.RTLD_GLOBAL);"
        f"cuda = ctypes.CDLL({folder!r} + '/cuda13/vgpu_cuda.so'); name = ctypes.create_string_buffer(96);"
        "cuda.cuInit(0); cuda.cuDeviceGetName(name, 96, 0); print(name.value.decode())"
    )
    env = {**os.environ, "GPUCAST_VGPU_PROFILE": "/no/such/profile"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "NVIDIA A100-SXM4-80GB\n"
    assert "GPUCAST_VGPU_PROFILE=/no/such/profile: No such file or directory" in done.stderr

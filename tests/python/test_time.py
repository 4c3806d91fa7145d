"""`gpucast time`: from a script to a step's time."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.zeros({batch}, 1024, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def times(gpucast_bin, *words):
    environment = {**os.environ, "XDG_CONFIG_HOME": "/none"}
    return subprocess.run([gpucast_bin, "time", *map(str, words)], capture_output=True, text=True, check=False, env=environment)


def report(gpucast_bin, *words):
    done = times(gpucast_bin, "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def capture(open_batch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("time")
    (folder / "train.py").write_text(SCRIPT.format(batch=8192))
    done = open_batch.gpucast(folder, [sys.executable, "train.py"], "--gpu", "a100-80", capture=folder / "train.gpucast")
    assert done.code == 0, done.err
    return done.capture_path


def test_products_are_on_paper(gpucast_bin, capture):
    result = report(gpucast_bin, capture, "--gpu", "a100-80,v100-16")
    # Forward: 2 products. Backward: two gradients of the second, and only the weight's gradient of the first: x needs none.
    product = 2 * 8192 * 1024 * 4096
    assert result["hardware_flops"] == 5 * product
    assert result["model_flops"] == 6 * product
    assert result["samples"] == 8192
    assert result["coverage"] == 1.0
    assert result["unknown_share"] == 0
    assert {part["name"] for part in result["by_phase"]} >= {"forward", "backward", "optimizer_step"}
    gemm = next(part for part in result["by_kind"] if part["name"] == "gemm")
    assert gemm["launches"] == 5
    assert gemm["flops"] == 5 * product
    a100, v100 = result["cards"]
    # fp32, at no more than the datasheet's rates: 19.5 and 15.7 TFLOP/s.
    for card, peak in ((a100, 19.5e12), (v100, 15.7e12)):
        products = next(part for part in card["by_kind"] if part["name"] == "gemm")
        assert 5 * product / peak < products["gpu_ns"] * 1e-9 < 2.5 * 5 * product / peak
        assert card["step"]["low_ns"] < card["step"]["expected_ns"] < card["step"]["high_ns"]
        assert sum(part["gpu_ns"] for part in card["by_kind"]) == pytest.approx(sum(part["gpu_ns"] for part in card["by_phase"]))
    assert result["step"] == a100["step"]
    assert a100["gpu_ns"] < v100["gpu_ns"]


ATTENTION = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
q, k, v = (torch.randn(2, 16, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
optimizer = torch.optim.SGD([q], lr=0.1)
for step in range(4):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal={causal}).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("causal", [False, True])
def test_cudnns_attention_costs_its_products(gpucast_bin, tmp_path, causal):
    """PyTorch's own choice on Hopper. Two products in forward, five in backward; a causal mask leaves half of them."""
    script = tmp_path / "train.py"
    script.write_text(ATTENTION.format(causal=causal))
    result = report(gpucast_bin, "--gpu", "h100-80", "--", sys.executable, script)
    attention = next(part for part in result["by_kind"] if part["name"] == "attention")
    assert attention["flops"] == 7 * 2 * 2 * 16 * 1024 * 1024 * 64 / (2 if causal else 1)
    assert result["unknown_share"] == 0


def test_a_command_is_captured_first(gpucast_bin, capture, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(batch=8192))
    result = report(gpucast_bin, "--gpu", "rtx3060", "--", sys.executable, script)
    again = report(gpucast_bin, capture, "--gpu", "rtx3060")
    # The same launches; PyTorch chooses the blocks of a sum by the captured card.
    assert result["gpu_ns"] == pytest.approx(again["gpu_ns"], rel=1e-4)
    failed = times(gpucast_bin, "--", sys.executable, "-c", "raise SystemExit(3)")
    assert failed.returncode == 2
    assert "could not be run" in failed.stderr


@pytest.mark.once
def test_nothing_is_said_of_a_capture_that_does_not_stay(gpucast_bin, capture):
    done = times(gpucast_bin, "--steps", "2", "--", sys.executable, capture.parent / "train.py")
    assert done.returncode == 0
    assert "capture is in" not in done.stderr + done.stdout


@pytest.mark.once
def test_a_step_before_the_end_is_timed_whatever_came_then(gpucast_bin, capture, tmp_path):
    """A script that raises in its third step has no verdict on its memory; but its second step was observed."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(batch=8192) + "    if step == 2:\n        raise ValueError('no data')\n")
    result = report(gpucast_bin, "--gpu", "a100-80", "--steps", 4, "--", sys.executable, script)
    assert result["hardware_flops"] == report(gpucast_bin, capture, "--gpu", "a100-80")["hardware_flops"]


def test_recomputed_forwards_are_no_flops_of_the_model(gpucast, gpucast_bin, capture):
    """What a checkpointed model computes again counts for the hardware, not for the model."""
    body = SCRIPT.format(batch=8192).replace("model(x)", "checkpoint(model, x.requires_grad_(), use_reentrant=False)")
    run = gpucast("from torch.utils.checkpoint import checkpoint\n" + body, "--gpu", "a100-80")
    plain = report(gpucast_bin, capture, "--gpu", "a100-80")
    result = report(gpucast_bin, run.capture_path, "--gpu", "a100-80")
    product = 2 * 8192 * 1024 * 4096
    assert result["model_flops"] == plain["model_flops"]
    assert (
        result["hardware_flops"] == (2 + 1 + 4) * product
    )  # again as far as backward needs it: to the second layer's input. x wants a gradient now


def test_a_known_time_and_a_faster_host(gpucast_bin, capture):
    known = report(gpucast_bin, capture, "--gpu", "a100-80,v100-16", "--known", "a100-80=12ms")
    assert known["step"]["low_ns"] == known["step"]["high_ns"] == known["step"]["expected_ns"] == pytest.approx(12e6)
    assert known["step_measured"] and not known["cards"][1]["step_measured"]
    assert known["known"]["gpu"] == "a100-80" and known["known"]["step_ns"] == 12e6
    text = times(gpucast_bin, capture, "--gpu", "a100-80", "--known", "v100-16=12s").stdout
    assert "follows from 12.0 s measured on v100-16" in text and "is it a step of this job?" in text
    plain = report(gpucast_bin, capture, "--gpu", "a100-80")
    fast = report(gpucast_bin, capture, "--gpu", "a100-80", "--cpu-speed", "1000")
    assert fast["host_ns"] < plain["host_ns"]
    assert fast["step"]["expected_ns"] <= plain["step"]["expected_ns"] * (1 + 1e-9)


@pytest.mark.once
def test_text_and_every_card(gpucast_bin, capture):
    done = times(gpucast_bin, capture, "--gpu", "all")
    assert done.returncode == 0, done.stderr
    assert "By phase" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    for card in ("a100-80", "rtx3060", "h200", "l40s"):
        assert f"\n  {card} " in done.stdout


@pytest.mark.once
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such.gpucast"], "no such file"),
        (["/tmp"], "this is a folder"),
        (["{capture}", "{capture}"], "two captures are of rank 0"),
        ([], "nothing was named"),
        (["{capture}", "--gpu", "a100-80,h1000"], "h1000"),
        (["{capture}", "--known", "a100-80"], "--known"),
        (["{capture}", "--known", "a100-80=-4ms"], "--known"),
        (["{capture}", "--known", "a100-80=4parsecs"], "--known"),
        (["{capture}", "--known", "a100-80=1e300s"], "--known"),
        (["{capture}", "--price", "a100-80"], "--price"),
        (["{capture}", "--price", "a100-80=-3"], "--price"),
        (["{capture}", "--price", "a100-80=1,h1000=2"], "h1000"),
        (["{capture}", "--price", "h100-80=2"], "there is a price of h100-80"),
        (["{capture}", "--epoch-steps", "0"], "--epoch-steps"),
        (["{capture}", "--operations", "-"], "replaces a step"),
        (["--operations", "-", "--gpu", "a100-80,h100-80"], "takes one card"),
        (["{capture}", "--machine", "aws-p55"], "did you mean 'aws-p5'"),
        (["{capture}", "--machine", "/no/such/file"], "the machine's file cannot be read"),
        (["{capture}", "--machine", "aws-p5", "--gpu", "h200"], "the machine 'aws-p5' has no NVIDIA H200"),
        (["--operations", "-", "--machine", "aws-p5", "--gpu", "h200"], "the machine 'aws-p5' has no NVIDIA H200"),
        (["{capture}", "--cpu-speed", "0"], "--cpu-speed"),
        (["{capture}", "--cpu-speed", "nan"], "--cpu-speed"),
        (["{capture}", "--constants", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_words(gpucast_bin, capture, words, says):
    done = times(gpucast_bin, *(str(word).replace("{capture}", str(capture)) for word in words))
    assert done.returncode == 2, done.stdout
    assert says in done.stderr


@pytest.mark.once
def test_a_script_that_raises_before_a_step(gpucast_bin, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.zeros(4, device='cuda')\nraise ValueError('no data')\n")
    done = times(gpucast_bin, "--", sys.executable, script)
    assert done.returncode == 2 and "ValueError: no data" in done.stderr
    assert "the script raised an exception before" in done.stderr and "step.gpucast" not in done.stderr


@pytest.mark.once
def test_an_epoch_and_what_it_costs(gpucast_bin, capture):
    result = report(gpucast_bin, capture, "--gpu", "a100-80,v100-16", "--price", "a100-80=1.8", "--epoch-steps", 1000)
    hours = result["step"]["expected_ns"] * 1000 / 3600e9
    assert result["epoch"] == {"steps": 1000, "ns": pytest.approx(hours * 3600e9)}
    assert result["cost"] == {
        "price_per_hour": 1.8,
        "cards": 1,
        "step": pytest.approx(1.8 * hours / 1000),
        "epoch": pytest.approx(1.8 * hours),
    }
    assert result["cards"][1]["cost"] is None and result["cards"][1]["epoch"]["steps"] == 1000
    text = times(gpucast_bin, capture, "--gpu", "a100-80,v100-16", "--price", "a100-80=1800,v100-16=9e5", "--epoch-steps", 1000).stdout
    assert "an epoch of 1000 steps takes" in text and f"costs {1800 * hours:.3g} at 1800 an hour" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    # Without a DataLoader the number of steps in an epoch is not known.
    result = report(gpucast_bin, capture, "--gpu", "a100-80", "--price", "a100-80=1.8")
    assert result["epoch"] is None and result["cost"]["epoch"] is None and result["cost"]["step"] > 0
    assert "1000 steps cost" in times(gpucast_bin, capture, "--gpu", "a100-80", "--price", "a100-80=1.8").stdout
    assert report(gpucast_bin, capture)["cost"] is None


@pytest.mark.once
def test_a_damaged_capture_is_refused(gpucast_bin, capture, tmp_path):
    whole = capture.read_bytes()
    for name, content in (("cut", whole[: len(whole) * 9 // 10]), ("flipped", whole[:-600] + bytes([whole[-600] ^ 0xFF]) + whole[-599:])):
        (tmp_path / f"{name}.gpucast").write_bytes(content)
        for command in ("time", "occupancy"):
            words = [gpucast_bin, command, str(tmp_path / f"{name}.gpucast")]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 2 and "cut off or damaged" in done.stderr, (name, command, done.stdout)


@pytest.mark.once
def test_captures_without_a_step_say_what_to_do(gpucast, gpucast_bin, tmp_path):
    short = gpucast(SCRIPT.format(batch=8).replace("range(4)", "range(1)")).capture_path
    done = times(gpucast_bin, short)
    assert done.returncode == 2
    assert "--steps 1" in done.stderr


@pytest.mark.once
def test_perfetto_shows_the_step_on_the_card(gpucast_bin, capture, tmp_path):
    path = tmp_path / "trace.json"
    subprocess.run([gpucast_bin, "export", capture, "--to", "perfetto", "-o", path], check=True, capture_output=True)
    events = json.loads(path.read_text())["traceEvents"]
    (name,) = [event["args"]["name"] for event in events if event["name"] == "process_name" and event["pid"] == 3]
    assert "as it would run on a100-80" in name
    slices = [event for event in events if event["pid"] == 3 and event["ph"] == "X"]
    for one, other in zip(slices, slices[1:]):
        assert one["ts"] + one["dur"] <= other["ts"] + 0.002, "one stream: one after the other"
    result = report(gpucast_bin, capture, "--gpu", "a100-80")
    assert sum(event["dur"] for event in slices) * 1000 == pytest.approx(result["gpu_ns"], rel=1e-3)
    products = [event for event in slices if event["cat"] == "gemm"]
    assert len(products) == 5
    assert products[0]["args"]["sizes"] == "8192 x 4096 x 1024, fp32"


@pytest.mark.once
def test_a_run_says_what_the_gpu_takes(gpucast_bin, capture):
    done = subprocess.run([gpucast_bin, "analyze", capture, "--format", "json"], capture_output=True, text=True, check=True)
    line = json.loads(done.stdout)["gpu_time"]
    assert line["expected_ns"] == report(gpucast_bin, capture, "--gpu", "a100-80")["gpu_ns"]
    assert line["low_ns"] < line["expected_ns"] < line["high_ns"]
    done = subprocess.run([gpucast_bin, "analyze", capture], capture_output=True, text=True, check=True)
    assert "GPU time of a step" in done.stdout


@pytest.mark.once
def test_users_own_constants_are_found(gpucast_bin, capture, tmp_path):
    folder = tmp_path / "gpucast"
    folder.mkdir()
    own = {"schema_version": 1, "cards": {"a100-80": {"rates": {"fp32_fraction": 0.3, "source": "a test"}}}}
    (folder / "constants.json").write_text(json.dumps(own))
    words = [gpucast_bin, "time", "--format", "json", "--gpu", "a100-80", capture]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)})
    assert str(folder) in done.stderr
    assert json.loads(done.stdout)["gpu_ns"] > 1.5 * report(gpucast_bin, capture, "--gpu", "a100-80")["gpu_ns"]


ORDER = """
import sys, torch
mode, n = sys.argv[1], 4096
layers = [torch.nn.Linear(n, n, bias=False, device="cuda") for _ in range(2)]
optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)
side, main = torch.cuda.Stream(), torch.cuda.current_stream()
x, host = torch.zeros(n, n, device="cuda"), torch.zeros(n, n)
if mode != "pageable":
    host = host.pin_memory()
if mode == "graph":
    side.wait_stream(main)
    with torch.cuda.stream(side):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for _ in range(50):
                x.relu_()
for step in range(4):
    if mode in ("copy", "pageable"):
        fresh = host.to("cuda", non_blocking=True)
    elif mode == "prefetch":
        with torch.cuda.stream(side):
            fresh = host.to("cuda", non_blocking=True)
    elif mode == "graph":
        graph.replay()
    y = layers[0](x)
    if mode in ("wait", "beside"):
        if mode == "wait":
            side.wait_stream(main)
        with torch.cuda.stream(side):
            z = layers[1](x)
        main.wait_stream(side)
    else:
        z = layers[1](x)
    if mode == "item":
        y.sum().item()
    elif mode == "prefetch":
        main.wait_stream(side)
    (y.sum() + z.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.once
def test_streams_events_and_the_host_wait_for_each_other(gpucast_bin, open_batch, tmp_path):
    (tmp_path / "train.py").write_text(ORDER)
    modes = ("plain", "beside", "wait", "copy", "pageable", "prefetch", "item", "graph")
    for mode in modes:
        done = open_batch.gpucast(tmp_path, [sys.executable, "train.py", mode], "--gpu", "a100-80", capture=tmp_path / f"{mode}.gpucast")
        assert done.code == 0, done.err
    found = {mode: report(gpucast_bin, tmp_path / f"{mode}.gpucast", "--cpu-speed", 1000) for mode in modes}
    step = {mode: one["step"]["expected_ns"] for mode, one in found.items()}

    def copied(mode):
        return sum(part["gpu_ns"] for part in found[mode]["by_kind"] if part["name"] == "copy") - copies

    copies = sum(part["gpu_ns"] for part in found["plain"]["by_kind"] if part["name"] == "copy")
    assert copied("copy") > 1e6  # 64 MiB over the bus
    assert copied("pageable") > 2 * copied("copy"), "through a buffer of the driver's"
    for mode in ("beside", "wait", "prefetch"):  # products share the card; a copy runs at the same time
        assert step[mode] == pytest.approx(step["plain"], rel=0.015), mode
    assert step["copy"] == pytest.approx(step["plain"] + copied("copy"), rel=0.002)
    assert step["plain"] < step["item"] < step["plain"] * 1.05  # a sum more, which the host waits for
    # A graph's kernels take their time on the stream that it was launched on, and one launch of the host's.
    added = [found[mode]["gpu_ns"] for mode in ("graph", "plain")]
    assert added[0] > added[1] * 1.01
    assert step["graph"] - step["plain"] == pytest.approx(added[0] - added[1], rel=0.02)
    assert found["graph"]["host_ns"] < found["plain"]["host_ns"] + 50 * 2500
    # They are the operators' that ran when it was captured, before the observed step.
    assert found["graph"]["coverage"] == 1
    # Both clocks are a microsecond apart at times: a kernel at its operator's end is then the operator's around it.
    relus = [kernel for kernel in found["graph"]["kernels"] if kernel["name"] in ("aten::clamp_min_", "aten::relu_")]
    assert sum(relu["calls"] for relu in relus) == 50
    assert {relu["sizes"] for relu in relus} == {f"{2 * 4096 * 4096 * 4 / 1e6:.1f} MB"}


LINES = [
    {"kind": "gemm", "precision": "bf16", "element_bytes": 2, "gemm": {"m": 4096, "n": 4096, "k": 4096, "b_transposed": True}},
    {
        "kind": "convolution",
        "convolution": {"batch": 32, "in_channels": 64, "out_channels": 64, "in": [56, 56], "out": [56, 56], "window": [3, 3]},
    },
    {
        "kind": "attention",
        "precision": "bf16",
        "element_bytes": 2,
        "attention": {
            "batch": 8,
            "heads": 16,
            "kv_heads": 16,
            "queries": 1024,
            "keys": 1024,
            "head_dim": 64,
            "value_dim": 64,
            "causal": True,
        },
    },
]


def told(gpucast_bin, tmp_path, lines, *words):
    path = tmp_path / "operations.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return times(gpucast_bin, "--operations", path, "--gpu", "a100-80", *words)


@pytest.mark.once
def test_a_shape_alone_has_an_ideal_time(gpucast_bin, tmp_path):
    alone = [json.loads(line) for line in told(gpucast_bin, tmp_path, LINES).stdout.splitlines()]
    given = [json.loads(line) for line in told(gpucast_bin, tmp_path, [{**line, "flops": 1e12} for line in LINES]).stdout.splitlines()]
    # On paper, at the datasheet's 312 TFLOP/s in bf16 and 19.5 in fp32.
    flops = [2 * 4096**3, 2 * 32 * 56 * 56 * 64 * 64 * 9, 4 * 8 * 16 * 1024 * 1024 * 64 / 2]
    for line, one, other, count in zip(LINES, alone, given, flops):
        peak = 312e12 if line.get("precision") == "bf16" else 19.5e12
        assert one["ideal_ns"] == pytest.approx(1e9 * count / peak, rel=1e-3)
        assert other["ideal_ns"] == pytest.approx(1e9 * 1e12 / peak, rel=1e-3), "the values in a line stay"
        for name in ("expected_ns", "low_ns", "high_ns", "bound"):
            assert one[name] == other[name]


@pytest.mark.once
@pytest.mark.parametrize(
    ("constants", "says"),
    [
        ({"cards": {"foo": {}}}, "no GPU is named 'foo'"),
        ({"architectures": {"99": {}}}, "no card's compute capability is '99'"),
        ({"cards": {"A100-80": {"rates": {"source": "x", "bf17_fraction": 0.5}}}}, "no constant is named 'rates.bf17_fraction'"),
        ({"cards": {"a100-80": {"rates": {"source": "x", "step_low": 1.5, "step_high": 1.2}}}}, "'rates.step_low' is 1.5, above 1"),
        ({"cards": {"a100-80": {"measured": "no"}}}, "neither true nor false"),
        ({"cards": {"a100-40-pcie": None}}, None),
    ],
)
def test_wrong_constants_are_errors(gpucast_bin, tmp_path, constants, says):
    path = tmp_path / "constants.json"
    path.write_text(json.dumps({"schema_version": 1, **constants}))
    done = told(gpucast_bin, tmp_path, LINES, "--constants", path)
    assert done.returncode == (2 if says else 0), done.stderr
    assert (says or "") in done.stderr


@pytest.mark.once
def test_a_line_without_its_shape_and_a_disk_without_a_unit(gpucast_bin, capture, tmp_path):
    done = told(gpucast_bin, tmp_path, [LINES[0], {"kind": "gemm"}])
    assert done.returncode == 2
    assert "line 2" in done.stderr and "needs its shape" in done.stderr
    done = times(gpucast_bin, capture, "--storage", "200")
    assert done.returncode == 2
    assert "has no unit" in done.stderr and "200MB/s" in done.stderr


@pytest.mark.once
def test_a_machine_gives_the_links(gpucast_bin, tmp_path):
    def ns(machine, nodes=1):
        shape = {"kind": "all_reduce", "ranks": 8 * nodes, "nodes": nodes, "bytes": 1 << 30}
        done = told(gpucast_bin, tmp_path, [{"kind": "collective", "collective": shape}], "--machine", machine)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["expected_ns"]

    half = tmp_path / "half.json"
    half.write_text(json.dumps({"like": "dgx-a100-80", "card_bytes_per_s": 150e9, "network_card_bytes_per_s": 12.5e9}))
    assert ns("dgx-a100-80") == ns("aws-p4de") == ns("lambda-a100-80")
    assert 1.6 < ns(half) / ns("dgx-a100-80") < 2.05
    assert 1.6 < ns(half, nodes=2) / ns("dgx-a100-80", nodes=2) < 2.05
    assert 2 < ns("aws-p4de", nodes=2) / ns("azure-ndm-a100-v4", nodes=2) < 4.2, "400 and 1600 Gb/s a node"

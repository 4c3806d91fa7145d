"""PyTorch programs on the virtual libraries alone, without the capture layer.

Each check runs a small script in a process of its own, with the libraries loaded before PyTorch as the capture layer does it,
and looks at PyTorch's own counters and at the log that the libraries write. The processes are children of one that has imported
PyTorch and has not touched CUDA; a check with an environment of its own has one of its own.
"""

import importlib.util
import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

# The capture layer by the name that it has in users' processes: `gpucast` is the Python API.
_LAYER = Path(__file__).resolve().parents[2] / "python" / "gpucast"
_spec = importlib.util.spec_from_file_location("_gpucast", _LAYER / "__init__.py", submodule_search_locations=[str(_LAYER)])
sys.modules["_gpucast"] = importlib.util.module_from_spec(_spec)
from _gpucast import libraries  # noqa: E402  which versions a PyTorch expects of its libraries

CARDS = {
    "sm_75": {"name": "Tesla T4", "compute_major": 7, "compute_minor": 5, "multiprocessors": 40, "total_memory_bytes": 15655829504},
    "sm_80": {
        "name": "NVIDIA A100-SXM4-40GB",
        "compute_major": 8,
        "compute_minor": 0,
        "multiprocessors": 108,
        "total_memory_bytes": 42474471424,
    },
    "sm_86": {
        "name": "NVIDIA GeForce RTX 3060",
        "compute_major": 8,
        "compute_minor": 6,
        "multiprocessors": 28,
        "total_memory_bytes": 12622168064,
    },
    "sm_90": {
        "name": "NVIDIA H100 80GB HBM3",
        "compute_major": 9,
        "compute_minor": 0,
        "multiprocessors": 132,
        "total_memory_bytes": 85028765696,
    },
}

PRELUDE = """
import ctypes, glob, os, warnings
warnings.simplefilter("ignore")
core = ctypes.CDLL(os.environ["VGPU"] + "/libgpucast_vgpu_core.so", ctypes.RTLD_GLOBAL)
for path in sorted(glob.glob(os.environ["VGPU"] + "/" + os.environ["VGPU_CUDA"] + "/*.so")):
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
import torch
import torch.nn as nn
import torch.nn.functional as F

def say(name, value):
    print(f"{name}={value}", flush=True)
"""

# Forks a child for each line {"script", "environment", "out"}, and answers with its exit status.
SERVER = """
import json, sys
import torch._dynamo  # every optimizer does
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        out = os.open(job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1); os.dup2(out, 2)
        os.environ.update(job["environment"])
        exec(compile(job["script"], "<string>", "exec"))
        os._exit(1)  # the script has an end of its own
    print("status=%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

EPILOGUE = """
torch.cuda.synchronize()
say("allocated", torch.cuda.max_memory_allocated())
say("reserved", torch.cuda.max_memory_reserved())
stats = torch.cuda.memory_stats()
say("allocations", stats["allocation.all.allocated"])
say("segments", stats["segment.all.allocated"])
assert core.gpucast_vgpu_write_log(os.environ["VGPU_LOG"].encode(), 0) == 0
# Not through the interpreter's own end: where kernels take no time, autograd's thread may still be letting go of its last
# graph, and a thread that Python ends inside a destructor ends the process.
os._exit(0)
"""


def torch_build():
    """The installed PyTorch, without importing it, which would need a GPU's libraries."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        pytest.skip("PyTorch is not installed in the interpreter that runs the tests")
    build = libraries.TorchBuild(spec.submodule_search_locations[0])
    if not build.cuda:
        pytest.skip("this PyTorch is built without CUDA")
    return build


def needs(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


class Done:
    def __init__(self, printed, lines):
        self.printed = dict(re.findall(r"^(\w+)=(.*)$", printed, re.MULTILINE))
        self.events = [line for line in lines if isinstance(line, list)]
        self.records = [line for line in lines if isinstance(line, dict)]

    def number(self, name):
        return int(self.printed[name])

    def calls(self, library, name=None):
        """Arguments of the logged calls."""
        return [e[3] for e in self.events if e[0] == "call" and e[1] == library and name in (None, e[2])]

    def operations(self, op):
        """cuDNN's graph operations of one kind."""
        return [o for call in self.calls("cudnn", "cudnnBackendExecute") for o in call["operations"] if o["op"] == op]

    @property
    def unsupported(self):
        return [(r["library"], r["name"]) for r in self.records if r["record"] == "unsupported"]


@pytest.fixture(scope="session")
def server(gpucast_bin):
    """run(script, environment, path of its output) -> exit status"""
    build = torch_build()
    folder = Path(gpucast_bin).parent.parent / "lib/gpucast/vgpu"
    env = dict(os.environ, VGPU=str(folder), VGPU_CUDA=f"cuda{build.cuda_major}")
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    process = subprocess.Popen([sys.executable, "-c", PRELUDE + SERVER], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(script, environment, out, timeout=300):
        process.stdin.write(json.dumps({"script": script, "environment": environment, "out": str(out)}) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], timeout)[0]:
            process.kill()
            raise TimeoutError(script)
        return int(process.stdout.readline().partition("=")[2])

    yield run
    process.stdin.close()
    process.wait(30)


@pytest.fixture
def run(gpucast_bin, server, tmp_path):
    """run(script, card) -> Done; the script must end well and every call must have had an answer."""
    folder = Path(gpucast_bin).parent.parent / "lib/gpucast/vgpu"
    build = torch_build()
    versions = libraries.library_versions(build.cuda, build.metadata())

    def run(script, card="sm_86", environment=(), supported=True):
        profile, log, out = tmp_path / "profile", tmp_path / "log", tmp_path / "out"
        profile.write_text("".join(f"{key} = {value}\n" for key, value in {**CARDS[card], **versions}.items()))
        files = {"VGPU_LOG": str(log), "GPUCAST_VGPU_PROFILE": str(profile)}
        if environment:
            env = dict(os.environ, VGPU=str(folder), VGPU_CUDA=f"cuda{build.cuda_major}", **files)
            env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
            env.update(environment)
            with out.open("w") as file:
                command = [sys.executable, "-c", PRELUDE + script + EPILOGUE]
                status = subprocess.run(command, env=env, stdout=file, stderr=file, timeout=300).returncode
        else:
            status = server(script + EPILOGUE, files, out)
        assert status == 0, out.read_text()[-4000:]
        result = Done(out.read_text(), [json.loads(line) for line in log.read_text().splitlines()])
        if supported:
            assert result.unsupported == []
        return result

    return run


MIB = 2**20
CUBLAS_WORKSPACE_BYTES = 8519680  # PyTorch's allocation for cuBLAS below sm_90


@pytest.mark.parametrize("n, matrix_bytes", [(1000, 4000256), (1024, 4 * MIB)])
def test_one_matrix_product(run, n, matrix_bytes):
    done = run(f"x = torch.randn({n}, {n}, device='cuda'); y = x @ x")
    assert done.number("allocated") == 2 * matrix_bytes + CUBLAS_WORKSPACE_BYTES
    assert done.number("reserved") == 20 * MIB
    (product,) = done.calls("cublas")
    assert (product["m"], product["n"], product["k"]) == (n, n, n)
    assert any(e[0] == "workspace" and e[1] == "cublas" and e[3] == CUBLAS_WORKSPACE_BYTES for e in done.events)


def test_linear_with_bias_goes_through_cublaslt(run):
    done = run(
        "m = nn.Linear(512, 256, device='cuda', dtype=torch.bfloat16); m(torch.randn(128, 512, device='cuda', dtype=torch.bfloat16)).sum().backward()"
    )
    products = done.calls("cublasLt", "cublasLtMatmul") + done.calls("cublas")
    assert products[0]["type"] == "bfloat16"
    assert sorted(products[0][key] for key in "mnk") == [128, 256, 512]


def test_batched_products_of_every_type(run):
    done = run("""
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
    a = torch.zeros(5, 32, 48, device='cuda', dtype=dtype); b = torch.zeros(5, 48, 16, device='cuda', dtype=dtype)
    torch.bmm(a, b); a[0] @ b[0]; torch.mv(a[0], b[0, :, 0].contiguous()); torch.dot(b[0, :, 0].contiguous(), b[0, :, 0].contiguous())
""")
    types = [call["type"] for call in done.calls("cublas") if call.get("batch") == 5]
    assert sorted(types) == ["bfloat16", "complex128", "complex64", "float16", "float32", "float64"]


# ---- Convolutional networks --------------------------------------------------------------------------------------------------

CONVOLUTIONS = """
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, groups=2), nn.BatchNorm2d(64),
                    nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
x = torch.randn(8, 3, 64, 64, device='cuda')
if LAST:
    net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    with torch.autocast('cuda', dtype=torch.float16, enabled=AMP):
        loss = F.cross_entropy(net(x), torch.zeros(8, dtype=torch.long, device='cuda'))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


GROUPED = """
x, layer = torch.randn(4, 64, 16, 16, device='cuda'), nn.Conv2d(64, 64, 3, padding=1, groups=64 // CHANNELS).cuda()
layer(x)
print(f"cudnn={torch.backends.cudnn.version()}")
"""


@pytest.mark.parametrize("card, channels", [("sm_86", 8), ("sm_86", 16), ("sm_80", 8)])
def test_workspace_of_narrow_groups(run, card, channels):
    """The rule from measured runs of RegNetY for releases that cannot be asked: a copy of x."""
    done = run(f"CHANNELS = {channels}" + GROUPED, card)
    (forward,) = done.calls("cudnn", "cudnnBackendExecute")
    expected = 4 * 64 * 16 * 16 * 4 if (card, channels) == ("sm_86", 8) and done.number("cudnn") < 90800 else 0
    assert forward["workspace_bytes"] == expected


@pytest.mark.parametrize("card", ["sm_75", "sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions(run, card, amp, channels_last):
    done = run(f"AMP, LAST = {amp}, {channels_last}" + CONVOLUTIONS, card)
    forward = done.operations("convolution_forward")
    assert [(c["x"][1], c["w"][0], c["stride"]) for c in forward] == [(3, 32, [1, 1]), (32, 64, [2, 2])] * 2
    assert {c["type"] for c in forward} == {"float16" if amp else "float32"}
    assert all((c["x_strides"][1] == 1) == channels_last for c in forward)
    assert len(done.operations("convolution_backward_filter")) == 4
    assert len(done.operations("convolution_backward_data")) == 2  # not for the images
    assert len(done.calls("cudnn", "cudnnBatchNormalizationBackwardEx")) == 4


def test_convolutions_with_benchmark_and_other_shapes(run):
    done = run("""
torch.backends.cudnn.benchmark = True
for dims, conv in ((1, nn.Conv1d(4, 8, 3)), (2, nn.ConvTranspose2d(4, 8, 3, stride=2)), (3, nn.Conv3d(4, 8, 3))):
    y = conv.cuda()(torch.randn(2, 4, *[10] * dims, device='cuda', requires_grad=True)).sum()
    y.backward()
F.conv2d(torch.randn(1, 8, 9, 9, device='cuda'), torch.randn(8, 1, 3, 3, device='cuda'), groups=8)
""")
    assert done.operations("convolution_forward") and done.operations("convolution_backward_data")


# Three Adam steps of ResNet-50, batch 32, on an RTX 3060: (peak allocated MiB, peak reserved MiB, allocations, segments) of an earlier,
# independent implementation.
RESNET50 = {"2.14.1": (2986.55, 3324.0, 2749, 135), "2.6.0": (2988.18, 3324.0, 2752, 135), "2.9.1": (2989.18, 3324.0, 2750, 135)}


def test_resnet50(run):
    needs("torchvision")
    done = run("""
import torchvision
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(32, 3, 224, 224, device='cuda'), torch.randint(0, 1000, (32,), device='cuda')
for _ in range(3):
    optimizer.zero_grad()
    output = model(x)
    F.cross_entropy(output, y).backward()
    optimizer.step()
""")
    assert len(done.operations("convolution_forward")) == 3 * 53
    release = torch_build().version.split("+")[0]
    if release not in RESNET50:
        pytest.skip(f"no reference figures for PyTorch {release}")
    allocated, reserved, allocations, segments = RESNET50[release]
    assert round(done.number("allocated") / MIB, 2) == allocated
    assert done.number("reserved") / MIB == reserved
    assert (done.number("allocations"), done.number("segments")) == (allocations, segments)


# ---- Attention ---------------------------------------------------------------------------------------------------------------

ATTENTION = """
from torch.nn.attention import SDPBackend, sdpa_kernel
q, k, v = (torch.randn(2, 8, 256, 64, device='cuda', dtype=torch.DTYPE, requires_grad=True) for _ in range(3))
with sdpa_kernel(SDPBackend.BACKEND):
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
say("gradient", q.grad.shape == q.shape)
"""


@pytest.mark.parametrize("card", ["sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize(
    "backend, dtype",
    [("FLASH_ATTENTION", "bfloat16"), ("EFFICIENT_ATTENTION", "float32"), ("MATH", "float32"), ("CUDNN_ATTENTION", "bfloat16")],
)
def test_attention(run, card, backend, dtype):
    done = run(ATTENTION.replace("DTYPE", dtype).replace("BACKEND)", backend + ")"), card)
    assert done.printed["gradient"] == "True"
    plans = done.calls("cudnn", "cudnnBackendExecute")
    assert len(plans) == (2 if backend == "CUDNN_ATTENTION" else 0)
    for plan in plans:
        shapes = [tensor["shape"] for operation in plan["operations"] for tensor in operation["tensors"]]
        assert [2, 8, 256, 64] in shapes


# ---- Recurrent networks, CTC -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_networks(run, kind, gates):
    done = run(f"""
net = nn.{kind}(24, 32, num_layers=2, bidirectional=True, dropout=0.5).cuda()
before = torch.cuda.memory_allocated()
net.flatten_parameters()
y, _ = net(torch.randn(7, 5, 24, device='cuda', requires_grad=True))
say("output", list(y.shape))
y.sum().backward()
say("weights", sum(p.numel() for p in net.parameters()))
say("storages", len(set(p.untyped_storage().data_ptr() for p in net.parameters())))
say("gradients", all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters()))
""")
    assert done.printed["output"] == "[7, 5, 64]"
    assert done.number("storages") == 1  # all weights in cuDNN's one weight space, as on a card
    assert done.printed["gradients"] == "True"
    one_direction = [gates * 32 * (size + 32) + 2 * gates * 32 for size in (24, 64)]
    assert done.number("weights") == 2 * sum(one_direction)
    (forward,) = done.calls("cudnn", "cudnnRNNForward")
    assert (forward["hidden_size"], forward["layers"], forward["directions"], forward["steps"], forward["batch"]) == (32, 2, 2, 7, 5)
    # Kept for backward: the gates of every step, at least.
    assert forward["reserve_bytes"] >= 7 * 5 * 2 * 2 * gates * 32 * 4
    assert len(done.calls("cudnn", "cudnnRNNBackwardData_v8")) == 1


def test_lstm_with_projection_and_packed_input(run):
    done = run("""
net = nn.LSTM(16, 32, proj_size=8, batch_first=True).cuda()
packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 6, 16, device='cuda'), torch.tensor([6, 4, 2]), batch_first=True)
y, (h, c) = net(packed)
say("sizes", [y.data.shape[1], h.shape[2], c.shape[2]])
""")
    assert done.printed["sizes"] == "[8, 8, 32]"


def test_ctc_loss(run):
    done = run("""
logits = torch.randn(50, 4, 20, device='cuda', requires_grad=True)
targets = torch.randint(1, 20, (4 * 10,), dtype=torch.int32)
F.ctc_loss(logits.log_softmax(2), targets, torch.full((4,), 50), torch.full((4,), 10)).backward()
lengths = [torch.full((4,), n, dtype=torch.int32).cuda() for n in (50, 10)]
F.ctc_loss(logits.log_softmax(2), targets.cuda(), *lengths).backward()
""")
    for name in ("cudnnCTCLoss", "cudnnCTCLoss_v8"):  # lengths on the host, lengths on the card
        (call,) = done.calls("cudnn", name)
        assert call["shape"] == [50, 4, 20]


# ---- FFT, sparse, linear algebra, random numbers -------------------------------------------------------------------------------


def test_fft(run):
    done = run("""
x = torch.randn(4, 128, 96, device='cuda', requires_grad=True)
torch.fft.irfft2(torch.fft.rfft2(x)).sum().backward()
torch.fft.fft(torch.randn(4, 1000, device='cuda', dtype=torch.complex128))
torch.stft(torch.randn(2, 4000, device='cuda'), 400, window=torch.ones(400, device='cuda'), return_complex=True)
""")
    shapes = [tuple(call["shape"]) for call in done.calls("cufft", "cufftXtExec")]
    assert (128, 96) in shapes and (1000,) in shapes and (400,) in shapes
    assert any(e[0] == "workspace" and e[1] == "cufft" and e[3] == 4 * 128 * 96 * 8 for e in done.events)


def test_sparse(run):
    done = run("""
dense = torch.zeros(64, 32)
dense[::3, ::5] = 1
for sparse in (dense.to_sparse_csr().cuda(), dense.to_sparse_coo().cuda()):
    y = sparse @ torch.randn(32, 8, device='cuda')
    say("shape", list(y.shape))
dense.to_sparse_csr().cuda() @ torch.randn(32, device='cuda')
""")
    assert done.printed["shape"] == "[64, 8]"
    assert done.calls("cusparse", "cusparseSpMM")[0]["rows"] == 64


def test_linear_algebra(run):
    done = run("""
for dtype in (torch.float32, torch.float64, torch.complex64):
    a = torch.randn(3, 40, 40, device='cuda', dtype=dtype)
    torch.linalg.svd(a); torch.linalg.svdvals(a[0]); torch.linalg.eigh(a); torch.linalg.cholesky(a); torch.linalg.solve(a, a[:, :, :3])
    torch.linalg.inv(a); torch.linalg.qr(a); torch.linalg.lu_factor(a[0]); torch.linalg.det(a); torch.cholesky_solve(a, a)
    torch.linalg.solve_triangular(a, a, upper=True); torch.linalg.lstsq(a, a)
large = torch.randn(600, 600, device='cuda')
torch.linalg.eigh(large); torch.linalg.svd(large); torch.linalg.solve(large, large); torch.linalg.cholesky(large); torch.linalg.qr(large)
torch.linalg.ldl_factor(large)
""")
    assert done.calls("cusolver")


def test_random_numbers_and_compiled_elementwise_kernels(run):
    run("""
torch.rand(1000, device='cuda'); torch.randn(1000, device='cuda'); torch.randint(0, 9, (1000,), device='cuda'); torch.randperm(1000, device='cuda')
torch.bernoulli(torch.full((10,), 0.5, device='cuda')); F.dropout(torch.ones(1000, device='cuda'), 0.1)
# PyTorch compiles these with NVRTC when they are first used.
x = torch.ones(100, dtype=torch.int64, device='cuda')
torch.gcd(x, x); torch.special.zeta(torch.ones(8, device='cuda'), torch.ones(8, device='cuda')); torch.special.airy_ai(torch.ones(8, device='cuda'))
""")


# ---- Training --------------------------------------------------------------------------------------------------------------------

TRANSFORMER = """
from torch.utils.checkpoint import checkpoint
layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(4)).cuda()
optimizer = torch.optim.AdamW(layers.parameters(), fused=True)
scaler = torch.amp.GradScaler('cuda', enabled=TYPE == torch.float16)
for _ in range(2):
    x = torch.randn(4, 64, 128, device='cuda')
    with torch.autocast('cuda', dtype=TYPE):
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if CHECKPOINT else layer(x)
    scaler.scale(x.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_transformer_with_autocast_and_checkpointing(run, dtype):
    plain = run(f"TYPE, CHECKPOINT = torch.{dtype}, False" + TRANSFORMER)
    checkpointed = run(f"TYPE, CHECKPOINT = torch.{dtype}, True" + TRANSFORMER)
    assert checkpointed.number("allocated") < plain.number("allocated")


def test_gpt2_from_configuration(run):
    needs("transformers")
    done = run("""
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=1000)).cuda().train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    ids = torch.zeros(4, 64, dtype=torch.long, device='cuda')
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""")
    assert len(done.calls("cublas")) + len(done.calls("cublasLt")) > 2 * 2 * 8


# ---- Several ranks; only one exists ---------------------------------------------------------------------------------------------

RANK_0_OF_8 = """
import torch.distributed as dist
store = dist.TCPStore('127.0.0.1', 0, 8, is_master=True, wait_for_workers=False)
dist.init_process_group('nccl', store=store, rank=0, world_size=8)
"""


def test_small_values_survive_collectives(run):
    done = run(
        RANK_0_OF_8
        + """
def reduced(value, dtype, op=dist.ReduceOp.SUM):
    tensor = torch.tensor([value], dtype=dtype).cuda()
    dist.all_reduce(tensor, op)
    return tensor.item()
say("sum", [reduced(3, dtype) for dtype in (torch.int32, torch.int64, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8)])
say("zero", [reduced(0, dtype) for dtype in (torch.float16, torch.bfloat16)])
say("other", [reduced(3, torch.float32, op) for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.AVG)])
parts = [torch.zeros(2, dtype=torch.int64).cuda() for _ in range(8)]
dist.all_gather(parts, torch.tensor([5, 7]).cuda())
say("gathered", [part.tolist() for part in parts] == [[5, 7]] * 8)
out = torch.zeros(2, dtype=torch.int64).cuda()
dist.reduce_scatter_tensor(out, torch.arange(16).cuda())
say("scattered", out.tolist())
sent = (torch.arange(8) * 10 + 4).cuda()
received = torch.zeros(8, dtype=torch.int64).cuda()
dist.all_to_all_single(received, sent)
say("exchanged", received.tolist())
values = torch.tensor([6, 1]).cuda()
dist.broadcast(values, 0)
say("broadcast", values.tolist())
dist.barrier()
dist.destroy_process_group()
"""
    )
    assert done.printed["sum"] == "[24, 24, 24.0, 24.0, 24.0, 24.0, 24]"
    assert done.printed["zero"] == "[0.0, 0.0]"
    assert done.printed["other"] == "[3.0, 3.0, 3.0]"
    assert done.printed["gathered"] == "True"
    assert done.printed["scattered"] == "[0, 8]"  # rank 0's part, added up
    assert done.printed["exchanged"] == "[4, 4, 4, 4, 4, 4, 4, 4]"  # every rank sends rank 0 the same as we do
    assert done.printed["broadcast"] == "[6, 1]"
    assert {call["world"] for call in done.calls("nccl")} == {8}


def test_ddp(run):
    done = run(
        RANK_0_OF_8
        + """
from torch.nn.parallel import DistributedDataParallel
model = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10)).cuda()
model = DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(32, 256, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
    )
    parameters = 256 * 256 + 256 + 2 * 256 + 256 * 10 + 10
    reduced = [call["count"] for call in done.calls("nccl", "ncclAllReduce") if call["type"] == "float32"]
    assert sum(reduced) == 2 * parameters


def test_fsdp(run):
    done = run(
        RANK_0_OF_8
        + """
from torch.distributed.fsdp import FullyShardedDataParallel
model = FullyShardedDataParallel(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)).cuda(), device_id=0)
say("shard", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(32, 1024, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
    )
    parameters = 1024 * 1024 + 1024 + 1024 * 8 + 8
    assert abs(done.number("shard") - parameters / 8) <= 1
    assert len(done.calls("nccl", "ncclReduceScatter")) == 2


# ---- Tools --------------------------------------------------------------------------------------------------------------------------


def test_profiler_and_ranges(run):
    done = run("""
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    torch.cuda.nvtx.range_push("part")
    torch.randn(64, 64, device='cuda') @ torch.randn(64, 64, device='cuda')
    torch.cuda.nvtx.range_pop()
say("matmul_rows", sum(event.key == "aten::mm" for event in profiler.key_averages()))
""")
    assert done.number("matmul_rows") == 1


def test_versions(run):
    done = run("""
say("cudnn", torch.backends.cudnn.version())
say("nccl", torch.cuda.nccl.version())
say("available", torch.backends.cudnn.is_available())
torch.zeros(1, device='cuda')
""")
    assert done.printed["available"] == "True"
    build = torch_build()
    versions = libraries.library_versions(build.cuda, build.metadata())
    assert done.number("cudnn") == versions["cudnn_version"]
    assert done.printed["nccl"] == str(tuple(versions["nccl_version"] // step % 100 for step in (10000, 100, 1)))


def test_a_split_has_no_colour_only_at_minus_one(run):
    """PyTorch 2.4 cuts its colours to 32 bits, and half of them are negative."""
    done = run(
        """
nccl = ctypes.CDLL(glob.glob(os.environ["VGPU"] + "/" + os.environ["VGPU_CUDA"] + "/vgpu_nccl.so")[0])
torch.zeros(1, device='cuda')
whole, part, none = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
nccl.ncclCommInitAll(ctypes.byref(whole), 1, None)
nccl.ncclCommSplit(whole, -2057847794, 0, ctypes.byref(part), None)
nccl.ncclCommSplit(whole, -1, 0, ctypes.byref(none), None)
say("made", [bool(part), bool(none)])
core.gpucast_vgpu_communicators.restype = ctypes.c_char_p
say("colours", [line.split()[1] for line in core.gpucast_vgpu_communicators().decode().splitlines()])
"""
    )
    assert done.printed["made"] == "[True, False]"
    assert done.printed["colours"] == "['-1', '-2057847794']"


def test_memory_of_another_rank_is_mapped_and_copied_over_the_link(run):
    done = run(
        """
cuda = ctypes.CDLL(glob.glob(os.environ["VGPU"] + "/" + os.environ["VGPU_CUDA"] + "/vgpu_cuda.so")[0])
MIB = 1 << 20
own = torch.zeros(MIB, device='cuda')
before = torch.cuda.mem_get_info()[0]
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("kind", ctypes.c_int), ("id", ctypes.c_int), ("rest", ctypes.c_char * 64)]
made, file, taken, place = ctypes.c_uint64(), ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint64()
codes = [
    cuda.cuMemCreate(ctypes.byref(made), ctypes.c_size_t(4 * MIB), ctypes.byref(Properties(1, 1, 1, 0)), ctypes.c_ulonglong(0)),
    cuda.cuMemExportToShareableHandle(ctypes.byref(file), made, 1, ctypes.c_ulonglong(0)),
    cuda.cuMemImportFromShareableHandle(ctypes.byref(taken), ctypes.c_void_p(file.value), 1),
    cuda.cuMemAddressReserve(ctypes.byref(place), ctypes.c_size_t(4 * MIB), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_ulonglong(0)),
    cuda.cuMemMap(place, ctypes.c_size_t(4 * MIB), ctypes.c_size_t(0), taken, ctypes.c_ulonglong(0)),
    cuda.cuMemcpyDtoDAsync_v2(ctypes.c_uint64(own.data_ptr()), place, ctypes.c_size_t(MIB), ctypes.c_uint64(0)),
]
say("codes", codes)
say("counted", before - torch.cuda.mem_get_info()[0])
"""
    )
    assert done.printed["codes"] == "[0, 0, 0, 0, 0, 0]"
    assert done.printed["counted"] == str(4 << 20)  # what this process made itself
    assert [line[1] for line in done.events if line[0] == "memcpy" and line[4] == 1 << 20] == [10]


def test_a_call_without_an_answer_is_named_once(run):
    done = run(
        """
cublas = ctypes.CDLL(glob.glob(os.environ["VGPU"] + "/" + os.environ["VGPU_CUDA"] + "/vgpu_cublas.so")[0])
torch.zeros(1, device='cuda')
say("status", [cublas.cublasXtCreate(None), cublas.cublasXtCreate(None)])
""",
        supported=False,
    )
    assert done.printed["status"] == "[15, 15]"  # CUBLAS_STATUS_NOT_SUPPORTED
    assert done.unsupported == [("cublas", "cublasXtCreate")]
    (record,) = [r for r in done.records if r["record"] == "unsupported"]
    assert record["count"] == 2

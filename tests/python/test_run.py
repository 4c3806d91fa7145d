"""`gpucast run` from the outside: its output, its exit codes, and that the machine stays unchanged."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Run, train_script

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def run(gpucast_bin, *words, **kwargs):
    return subprocess.run([gpucast_bin, "run", *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **kwargs)


def wait_until_empty(folder):
    """Another process cleans up after a supervisor that was killed."""
    deadline = time.monotonic() + 10
    while (left := list(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def expect_error(done, *texts):
    """Exit code 2, nothing on standard output, each text in the message, and no traceback of ours."""
    code, out, err = (done.code, done.out, done.err) if isinstance(done, Run) else (done.returncode, done.stdout, done.stderr)
    assert code == 2, err
    assert out == ""
    for text in texts:
        assert text in err
    assert "_gpucast" not in err and "internal error" not in err


# ---- bad input -----------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_no_such_command(gpucast_bin):
    expect_error(run(gpucast_bin, "--", "pyhton3", "train.py"), "no such command: 'pyhton3'", "did you mean 'python3'?")


@pytest.mark.once
def test_script_named_as_command(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text("print(1)")
    expect_error(run(gpucast_bin, "--", "train.py", cwd=tmp_path), "no such command: 'train.py'", "-- python train.py")
    expect_error(run(gpucast_bin, "--", "./train.py", cwd=tmp_path), "'./train.py' is not executable", "python ./train.py")


@pytest.mark.once
def test_unknown_gpu(gpucast_bin):
    expect_error(run(gpucast_bin, "--gpu", "rtx3061", "--", "true"), "'rtx3061'", "did you mean 'rtx3060'?")
    expect_error(run(gpucast_bin, "--card", "rtx3060", "--", "true"), "--card", "did you mean '--gpu'?")
    expect_error(run(gpucast_bin, "--gpu", "rtx306", "--", "true"), "'rtx306' may be any of several GPUs: rtx3060, ")


@pytest.mark.once
def test_no_command(gpucast_bin):
    expect_error(run(gpucast_bin, "--gpu", "rtx3060"), "command is required")


@pytest.mark.once
def test_steps_must_be_positive(gpucast_bin):
    expect_error(run(gpucast_bin, "--steps", "0", "--", "true"), "--steps")


@pytest.mark.once
def test_output_exists(gpucast_bin, tmp_path):
    output = tmp_path / "mine.gpucast"
    output.write_text("mine")
    marker = tmp_path / "started"
    expect_error(run(gpucast_bin, "-o", str(output), "--", "touch", str(marker)), "the output file exists", "--force")
    assert output.read_text() == "mine"
    assert not marker.exists()


@pytest.mark.once
def test_output_folder(gpucast_bin, tmp_path):
    expect_error(run(gpucast_bin, "-o", str(tmp_path / "no/x.gpucast"), "--", "true"), "folder does not exist", "mkdir -p")
    expect_error(run(gpucast_bin, "-o", str(tmp_path), "--", "true"), "is a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


@pytest.mark.once
def test_force_keeps_the_old_file_when_nothing_was_captured(gpucast_bin, tmp_path):
    output = tmp_path / "mine.gpucast"
    output.write_text("mine")
    expect_error(run(gpucast_bin, "--force", "-o", str(output), "--", "true"), "saw no Python")
    assert output.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.gpucast", "tmp"]


@pytest.mark.once
def test_command_fails_before_python(gpucast_bin):
    expect_error(run(gpucast_bin, "--", "sh", "-c", "echo no data >&2; exit 4"), "no data", "exit code 4", "saw no Python")


@pytest.mark.once
def test_command_killed(gpucast_bin):
    expect_error(run(gpucast_bin, "--", "sh", "-c", "kill -SEGV $$"), "signal 11")


@pytest.mark.once
def test_python_fails_before_torch(gpucast_bin):
    done = run(gpucast_bin, "--", sys.executable, "-c", "import nowhere")
    expect_error(done, "ModuleNotFoundError: No module named 'nowhere'", "exit code 1", "before it imported PyTorch")


@pytest.mark.once
def test_torch_never_imported(gpucast_bin):
    expect_error(run(gpucast_bin, "--", sys.executable, "-c", "print(1)"), "without importing PyTorch")


@pytest.mark.once
@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_isolated_python(gpucast_bin, option):
    expect_error(run(gpucast_bin, "--", sys.executable, option, "-c", "print(1)"), "saw no Python", option)
    expect_error(run(gpucast_bin, "--", sys.executable, option, "-c", "1 / 0"), "saw no Python", option)


@pytest.mark.once
def test_torch_missing(gpucast_bin, tmp_path):
    # A Python without site-packages: the base interpreter of this environment, and nothing else on its path.
    script = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and 'dist-packages' not in p]; import torch"
    done = run(gpucast_bin, "--", sys.executable, "-c", script)
    expect_error(done, "ModuleNotFoundError: No module named 'torch'", "PyTorch is not installed in this Python", "pip install torch")


@pytest.mark.once
def test_cpu_only_torch(gpucast_bin, fake_torch):
    fake_torch("2.14.1+cpu")
    done = run(gpucast_bin, "--", sys.executable, "-c", "import torch")
    expect_error(done, "PyTorch 2.14.1+cpu is a CPU-only build", "pip install torch==2.14.1")
    assert "must not run" not in done.stderr


@pytest.mark.once
def test_torch_for_another_cuda(gpucast_bin, fake_torch):
    fake_torch("2.1.0+cu118", cuda="11.8")
    expect_error(run(gpucast_bin, "--", sys.executable, "-c", "import torch"), "CUDA 11.8", "CUDA 12 and 13")


@pytest.mark.once
def test_torch_with_cudnn_8(gpucast_bin, tmp_path, monkeypatch):
    """PyTorch before 2.4 finds a cuDNN 8, with the interface for recurrent networks that it uses."""
    folder = tmp_path / "fake" / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '2.3.1+cu121'\ncuda = '12.1'\n")
    (folder / "__init__.py").write_text("""
import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p

cudnn = ctypes.CDLL("libcudnn.so.8")
x, rnn, size = c_void_p(), c_void_p(), c_size_t()
cudnn.cudnnCreateTensorDescriptor(byref(x))
cudnn.cudnnSetTensorNdDescriptor(x, 0, 3, (c_int * 3)(16, 128, 1), (c_int * 3)(128, 1, 1))
cudnn.cudnnCreateRNNDescriptor(byref(rnn))
cudnn.cudnnSetRNNDescriptor_v6(None, rnn, 256, 2, None, 0, 1, 2, 0, 0)
cudnn.cudnnGetRNNParamsSize(None, rnn, x, byref(size), 0)
raise SystemExit(f"version={cudnn.cudnnGetVersion()} weights={size.value}")
""")
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    done = run(gpucast_bin, sys.executable, "-c", "import torch")
    weights = sum(2 * (4 * 256 * (inputs + 256) + 2 * 4 * 256) for inputs in (128, 512))  # an LSTM of two layers in both directions
    assert f"version=8902 weights={4 * weights}" in done.stderr


@pytest.mark.once
def test_rocm_torch(gpucast_bin, fake_torch):
    fake_torch("2.9.0+rocm6.4", hip="6.4")
    expect_error(run(gpucast_bin, "--", sys.executable, "-c", "import torch"), "ROCm build")


@pytest.mark.once
def test_cuda_never_used(gpucast):
    expect_error(gpucast("import torch; assert torch.cuda.is_available()"), "never used CUDA")


@pytest.mark.once
def test_gpu_only_asked_about(gpucast):
    expect_error(gpucast("import torch; print(torch.cuda.get_device_name())"), "NVIDIA A100", "allocated nothing")


@pytest.mark.once
def test_training_on_the_cpu_is_ended(gpucast):
    done = gpucast(train_script(steps=10**9).replace('"cuda"', '"cpu"'))
    assert done.code == 2 and done.out == ""
    assert "without using CUDA" in done.err


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"])
def test_allocator_that_cannot_be_recorded(gpucast, variable):
    done = gpucast(train_script(), environment=dict([variable.split("=")]))
    assert done.code == 2 and done.out == ""
    assert "does not let its allocator be recorded" in done.err and "to do: use PyTorch's own caching allocator" in done.err


@pytest.mark.once
def test_script_raises_before_cuda(gpucast):
    done = gpucast("import torch\nraise KeyError('lr')")
    assert done.code == 2 and done.out == ""
    assert "KeyError: 'lr'" in done.err and "before it allocated anything" in done.err


# ---- scripts that fail later ---------------------------------------------------------------------------------------------------


def test_script_raises(gpucast, tmp_path):
    script = train_script(after_step="if step == 1: raise ValueError('bad batch')")
    done = gpucast(script)
    assert done.code == 2
    plain = subprocess.run([sys.executable, "-c", "def f():\n    raise ValueError('bad batch')\nf()"], capture_output=True, text=True)
    assert plain.stderr.splitlines()[-1] in done.err  # ValueError: bad batch
    traceback = done.err[done.err.index("Traceback") : done.err.index("ValueError: bad batch")]
    assert traceback.count("File ") == 1 and "train.py" in traceback
    assert done.report["steps"] is not None
    assert done.capture.one("end")["reason"] == "exception"
    (mark,) = done.capture.marks("exception")
    assert mark[3] == "ValueError: bad batch"
    assert len(done.capture.marks("step")) == 2


@pytest.mark.once
def test_nothing_to_judge(gpucast, gpucast_bin):
    """Before the first optimizer step a step's memory is not known."""
    script = train_script().replace("optimizer.zero_grad()", "raise ValueError('bad batch')")
    done = gpucast(script)
    assert done.code == 2
    assert done.report["verdict"] == "none" and "before its first optimizer step" in done.report["verdict_reason"]
    assert {card["verdict"] for card in done.report["cards"]} == {"none"} and done.report["min_capacity_bytes"] is None
    text = subprocess.run([gpucast_bin, "analyze", done.capture_path], capture_output=True, text=True)
    assert text.stdout.startswith("NO VERDICT") and "FITS" not in text.stdout and "Cards" not in text.stdout and text.returncode == 2
    too_large = gpucast("import torch\nx = torch.empty(20 * 2**30, dtype=torch.uint8, device='cuda')\n1 / 0", "--gpu", "rtx3060")
    assert too_large.report["verdict"] == "does_not_fit" and too_large.code == 2


@pytest.mark.once
@pytest.mark.slow
def test_one_rank_of_two_fails(gpucast, gpucast_bin):
    body = train_script(after_step="if rank == 1: HOW").replace("\n", "\n    ")
    script = f"import multiprocessing, os\ndef train(rank):\n    os.environ['RANK'] = str(rank)\n    {body}\nif __name__ == '__main__':\n"
    script += (
        "    context = multiprocessing.get_context('spawn')\n    jobs = [context.Process(target=train, args=(rank,)) for rank in (0, 1)]\n"
    )
    script += "    for job in jobs: job.start()\n    for job in jobs: job.join()\n"
    dies = "os.kill(os.getpid(), 9)"
    for how, what in (("raise ValueError('bad batch')", "failed (exit code 1)"), (dies, "died before its capture was written")):
        done = gpucast(script.replace("HOW", how))
        assert done.code == 2, done.err
        assert done.report["failed_ranks"] == [{"rank": 1, "what": what}] and done.report["environment"]["rank"] == 0
    text = subprocess.run([gpucast_bin, "analyze", done.capture_path], capture_output=True, text=True).stdout
    assert text.startswith("FAILED rank 1 died")


@pytest.mark.once
def test_traceback_has_no_frames_of_ours(gpucast):
    script = """
import torch
class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("no gradient today")
x = torch.ones(4, device="cuda", requires_grad=True)
Broken.apply(x).sum().backward()
"""
    done = gpucast(script)
    assert done.code == 2
    assert "no gradient today" in done.err
    assert "gpucast/hooks.py" not in done.err


@pytest.mark.once
def test_failed_capture_is_kept_without_output_option(gpucast, leaves_nothing):
    done = gpucast(train_script(after_step="raise ValueError('no')"), keep=False)
    assert done.code == 2
    (kept,) = leaves_nothing.glob("*.gpucast")
    assert str(kept) in done.err
    assert done.report["schema_version"]


@pytest.mark.once
def test_a_run_leaves_its_result_only(gpucast, leaves_nothing):
    """Without an output option. Nothing of multiprocessing and PyTorch either, which a normal end of the interpreter removes: the script is
    killed. `leaves_nothing` looks for the sleep."""
    start = """
import multiprocessing, os, subprocess
subprocess.Popen(["setsid", "sleep", "1000"], start_new_session=True)
lock = multiprocessing.get_context("spawn").Lock()
os.write(2, f"semaphore={lock._semlock.name}\\n".encode())
assert os.path.exists("/dev/shm/sem." + lock._semlock.name[1:])
import torch
data = iter(torch.utils.data.DataLoader(torch.zeros(4096, 64), batch_size=8, num_workers=2))
"""
    script = train_script(after_step="next(data)\nprint('loss of step', step)")
    done = gpucast(script.replace("import torch\n", start, 1), keep=False)
    assert done.code == 0, done.err
    assert list(leaves_nothing.iterdir()) == []
    # Named semaphores of processes that multiprocessing spawns: its own tracker removes them, once all that had them are gone.
    name = next(line for line in done.err.splitlines() if line.startswith("semaphore=/"))[len("semaphore=/") :]
    assert not os.path.exists(f"/dev/shm/sem.{name}")
    assert json.loads(done.out)["schema_version"]
    # Printed and not flushed by the script, standard error being no terminal.
    assert "loss of step 0" in done.err and "loss of step 1" in done.err
    assert "loss of step 3" not in done.err


@pytest.mark.once
def test_own_exit_code(gpucast):
    done = gpucast(train_script(steps=2, at_end="raise SystemExit(7)"))
    assert done.code == 2
    assert "exit code 7" in done.err
    assert done.capture.one("command_end")["exit_code"] == 7


@pytest.mark.once
@pytest.mark.slow
def test_script_killed_while_captured(gpucast, gpucast_bin):
    """What the virtual GPU's core knew by then is in a file, which no signal takes away."""
    grow = "kept = torch.empty(300 * 2**20, dtype=torch.uint8, device='cuda')\ndel kept\ntorch.cuda.empty_cache()\n"
    whole = gpucast(train_script(after_step=grow)).report
    for number in (signal.SIGSEGV, signal.SIGKILL):
        done = gpucast(train_script(after_step=grow + f"import os; os.kill(os.getpid(), {int(number)})"), fresh=True)
        assert done.code == 2 and f"signal {int(number)}" in done.err
        report = done.report
        assert report["partial"] is True and report["end_reason"] == "killed" and report["verdict"] == "none"
        assert report["peak"]["reserved_bytes"] == whole["peak"]["reserved_bytes"] and report["peak"]["allocated_bytes"] is None
        assert report["environment"]["torch"] and [warning["code"] for warning in report["warnings"]] == ["killed"]
    text = subprocess.run([gpucast_bin, "analyze", done.capture_path], capture_output=True, text=True)
    assert text.returncode == 2 and text.stdout.startswith("PARTIAL") and "FITS" not in text.stdout and "activations" not in text.stdout


@pytest.mark.once
def test_out_of_memory_with_enforced_capacity(gpucast):
    script = "import torch\nkept = [torch.empty(2**30, dtype=torch.uint8, device='cuda') for _ in range(100)]"
    done = gpucast(script, "--gpu", "rtx3060", "--enforce-capacity")
    assert done.code == 1, done.err
    assert "OutOfMemoryError" in done.err
    free = gpucast(script, "--gpu", "rtx3060")
    assert free.code == 1 and "OutOfMemoryError" not in free.err
    assert free.report["peak"]["allocated_bytes"] == 100 * 2**30


def test_out_of_memory_can_be_caught(gpucast):
    script = """
import torch
size = 2**36
while True:
    try:
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
        break
    except torch.cuda.OutOfMemoryError:
        size //= 2
print(f"size={size}")
"""
    done = gpucast(script, "--gpu", "rtx3060", "--enforce-capacity")
    assert done.code == 0, done.err
    assert done.printed("size") == 2**33


# ---- the end ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_nothing_of_the_script_runs_after_the_end(gpucast):
    script = """
import atexit, threading, time, signal
def leave(name):
    open(name, "w").close()
atexit.register(leave, "atexit")
signal.signal(signal.SIGTERM, lambda *_: leave("sigterm"))
def watch():
    while True:
        time.sleep(0.001)
        if "done" in globals():
            leave("thread")
threading.Thread(target=watch, daemon=True).start()
try:
""" + "\n".join("    " + line for line in train_script(after_step="if step == 2: done = True").splitlines())
    script += "\nfinally:\n    leave('finally')\n"
    done = gpucast(script, "--steps", "2", fresh=True)
    assert done.code == 0, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


@pytest.mark.once
@pytest.mark.parametrize("steps", [2, 100])
def test_shell_does_not_go_on(gpucast, steps):
    done = gpucast(train_script(steps=steps), command=["sh", "-c", f"{sys.executable} train.py && touch uploaded; touch after"])
    assert done.code == 0, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


@pytest.mark.once
def test_output_through_a_pipe_is_not_lost(gpucast):
    script = train_script(after_step="if step == 1: raise ValueError('bad batch')")
    done = gpucast(script, command=["sh", "-c", f"{sys.executable} train.py 2>&1 | tee log"])
    assert done.code == 2
    assert "ValueError: bad batch" in (gpucast.job / "log").read_text()


@pytest.mark.once
def test_no_checkpoint_is_written(gpucast):
    """Except files saved before anything was on the card. Folders for checkpoints go, too, unless they hold something."""
    script = train_script(
        after_step="""torch.save(model.state_dict(), "model.pt")
import pathlib
torch.save(obj=model, f=pathlib.Path("best.pt"))"""
    ).replace(
        "model = ",
        "import os\nos.makedirs('out/best')\nos.makedirs('log/run')\nopen('log/run/1', 'w')\ntorch.cuda.init()\ntorch.save(torch.ones(3), 'data.pt')\nassert torch.load('data.pt').sum() == 3\nmodel = ",
    )
    checkpoint = gpucast.job / "model.pt"
    checkpoint.write_bytes(b"real")
    done = gpucast(script)
    assert done.code == 0, done.err
    assert checkpoint.read_bytes() == b"real"
    assert not (gpucast.job / "best.pt").exists()
    assert not (gpucast.job / "out").exists() and (gpucast.job / "log/run/1").exists()
    (warning,) = [line for line in done.capture.all("warning") if line["code"] == "checkpoint_not_written"]
    assert "model.pt" in warning["message"] and "best.pt" in warning["message"]


def test_safetensors_are_not_written(gpucast):
    if importlib.util.find_spec("safetensors") is None:
        pytest.skip("no safetensors")
    script = train_script(
        after_step="from safetensors.torch import save_file, save_model\nsave_file(model.state_dict(), 'a.safetensors')\nsave_model(model, 'b.safetensors')"
    )
    done = gpucast(script)
    assert done.code == 0, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


def test_unwritten_checkpoint_is_found_until_the_end(gpucast):
    """A script may look for the checkpoint that it has saved, load it, rename or copy it. No file of the user's is replaced."""
    script = train_script(
        after_step="""import os, pathlib, shutil
weights = model.state_dict()
torch.save({"step": step, "model": weights}, "last.pt.tmp")
os.replace("last.pt.tmp", "last.pt")
shutil.copy("last.pt", "best.pt")
shutil.copy("last.pt", "real.pt")
os.makedirs("new", exist_ok=True)
torch.save(weights, "new/a.pt")
pathlib.Path("new").rename(f"kept{step}")
for loaded in (torch.load("last.pt"), torch.load("best.pt", map_location="cpu", mmap=True)):
    assert loaded["step"] == step
    assert [(name, value.shape, value.dtype, value.stride()) for name, value in loaded["model"].items()] == [
        (name, value.shape, value.dtype, value.stride()) for name, value in weights.items()
    ]
    model.load_state_dict(loaded["model"])
assert os.path.getsize("last.pt") > sum(value.nbytes for value in weights.values())
assert pathlib.Path("real.pt").read_bytes() == b"real"
os.remove("last.pt")"""
    )
    (gpucast.job / "real.pt").write_bytes(b"real")
    done = gpucast(script)
    assert done.code == 0, done.err
    assert sorted(str(path.relative_to(gpucast.job)) for path in gpucast.job.rglob("*") if path.is_file()) == ["real.pt", "train.py"]


@pytest.mark.once
def test_an_older_checkpoint_stays_when_the_script_removes_its_own(gpucast):
    script = train_script(
        after_step="""import os, pathlib
torch.save(model, "best.pt")
os.replace("best.pt", "moved.pt")
torch.save(model, "best.pt")
pathlib.Path("best.pt").unlink()
if step == 0:
    os.remove("older.pt")"""
    )
    (gpucast.job / "best.pt").write_bytes(b"real")
    (gpucast.job / "older.pt").write_bytes(b"not saved by this run")
    done = gpucast(script)
    assert done.code == 0, done.err
    assert {path.name for path in gpucast.job.iterdir()} == {"train.py", "best.pt"}
    assert (gpucast.job / "best.pt").read_bytes() == b"real"


@pytest.mark.once
def test_nothing_stands_for_a_checkpoint_of_a_killed_script(gpucast):
    done = gpucast(train_script(after_step="torch.save(model, 'a.pt')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
    assert done.code == 2, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


def test_unwritten_safetensors_are_read(gpucast):
    if importlib.util.find_spec("safetensors") is None:
        pytest.skip("no safetensors")
    script = train_script(
        after_step="""from safetensors.torch import load_file, load_model, save_file, save_model
save_file(model.state_dict(), 'a.safetensors', metadata={'format': 'pt'})
save_model(model, 'b.safetensors')
assert {name: value.shape for name, value in load_file('a.safetensors').items()} == {name: value.shape for name, value in model.state_dict().items()}
load_model(model, 'b.safetensors')"""
    )
    done = gpucast(script)
    assert done.code == 0, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


def test_distributed_checkpoints_are_not_written(gpucast):
    script = train_script(
        after_step="import torch.distributed.checkpoint as dcp\ndcp.save({'m': model.state_dict()}, checkpoint_id='folder')"
    )
    done = gpucast(script)
    assert done.code == 0, done.err
    assert [path.name for path in gpucast.job.iterdir()] == ["train.py"]


@pytest.mark.once
def test_saving_before_cuda_is_real(gpucast):
    done = gpucast("import torch\ntorch.save([1, 2], 'vocabulary.pt')\nassert torch.load('vocabulary.pt') == [1, 2]\n" + train_script())
    assert done.code == 0, done.err


@pytest.mark.once
@pytest.mark.parametrize("redirect", ["", pytest.param("2>&1", marks=pytest.mark.slow)])
def test_reader_of_the_report_goes_away(gpucast, gpucast_bin, leaves_nothing, redirect):
    (gpucast.job / "train.py").write_text(train_script(after_step="print('x' * 10000, flush=True)"))
    line = f"{gpucast_bin} run --format json -- {sys.executable} train.py {redirect} | head -c 10"
    done = subprocess.run(["sh", "-c", line], cwd=gpucast.job, capture_output=True, text=True, timeout=120)
    assert "internal error" not in done.stderr
    if not redirect:  # else the script itself fails at its print, and its capture is kept
        assert list(leaves_nothing.glob("*gpucast*")) == []


@pytest.mark.once
@pytest.mark.slow
def test_timeout(gpucast):
    script = train_script(steps=1, at_end="import time; time.sleep(1000)")
    started = time.monotonic()
    done = gpucast(script, "--timeout", "20")
    assert time.monotonic() - started < 90
    assert done.code == 0, done.err
    assert done.capture.one("end")["reason"] == "timeout"
    assert len(done.capture.marks("step")) == 1


@pytest.mark.once
@pytest.mark.slow
def test_timeout_while_the_script_allocates(gpucast):
    """The history and PyTorch's counters are of one moment although the script goes on in its own thread."""
    script = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(30)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
while True:
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
"""
    done = gpucast(script, "--timeout", "15", "--steps", "1000000")
    assert done.report["end_reason"] == "timeout" and done.report["matches_recorded"] is True
    assert not {"counters_disagree", "replay_differs"} & {warning["code"] for warning in done.report["warnings"]}


def test_history_up_to_a_position():
    spec = importlib.util.spec_from_file_location("history", ROOT / "python/gpucast/history.py")
    history = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(history)
    actions = (
        "segment_alloc",
        "alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_free",
        "segment_alloc",
        "alloc",
        "free_requested",
    )
    events = [{"action": action} for action in actions]
    assert history.until(events, 3, 2) is events
    assert history.until(events, 2, 1) == events[:5]
    assert history.until(events, 2, 0) == events[:3]
    assert history.until(events[:6], 2, 1) == events[:6]  # the script's last event was an empty_cache


@pytest.mark.once
def test_timeout_with_nothing_captured(gpucast_bin):
    done = run(gpucast_bin, "--timeout", "1", "--", "sleep", "1000")
    expect_error(done, "nothing was allocated on the GPU within 1 s")


@pytest.mark.once
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted(gpucast_bin, tmp_path, number):
    (tmp_path / "train.py").write_text(train_script(steps=10**9, after_step="print('step', step, flush=True)"))
    words = [
        gpucast_bin,
        "run",
        "--steps",
        "1000000",
        "-o",
        "x.gpucast",
        "--",
        "sh",
        "-c",
        f"sleep 1000 & {sys.executable} train.py; touch after",
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 3"):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == "" and "interrupted" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp", "train.py"]


@pytest.mark.once
def test_command_leaves_a_background_process(gpucast_bin):
    expect_error(run(gpucast_bin, "--", "sh", "-c", "sleep 1000 & exit 3"), "exit code 3")
    expect_error(run(gpucast_bin, "--", "sh", "-c", "sleep 1000 & exit 0"), "saw no Python")


@pytest.mark.once
def test_training_in_the_background(gpucast):
    done = gpucast(train_script(), command=["sh", "-c", f"{sys.executable} train.py &"])
    assert done.code == 0, done.err
    assert len(done.capture.marks("step")) == 3


@pytest.mark.once
def test_supervisor_killed(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text(train_script(steps=10**9, after_step="print('step', step, flush=True)"))
    words = [gpucast_bin, "run", "--steps", "1000000", "--", "sh", "-c", f"{sys.executable} train.py; true"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 3"):
            break
    for pid in filter(str.isdigit, os.listdir("/proc")):  # `killall` means the process that cleans up, too
        with contextlib.suppress(OSError):
            own = (Path("/proc") / pid / "cmdline").read_bytes() == b"\0".join(map(os.fsencode, words)) + b"\0"
            if own and int(pid) != process.pid:
                os.kill(int(pid), signal.SIGTERM)
    process.kill()
    process.communicate(timeout=30)  # ends once no process holds the pipe
    wait_until_empty(tmp_path / "tmp")


@pytest.mark.once
def test_users_sitecustomize_runs(gpucast, monkeypatch, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.from_sitecustomize = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    done = gpucast("import sitecustomize, sys\nassert from_sitecustomize == 42\nassert 'mine' in sitecustomize.__file__\n" + train_script())
    assert done.code == 0, done.err


@pytest.mark.once
def test_users_excepthook_runs(gpucast):
    script = "import sys\nsys.excepthook = lambda *_: print('mine', file=sys.stderr)\n" + train_script(after_step="raise ValueError('bad')")
    done = gpucast(script)
    assert done.code == 2 and "mine" in done.err and "Traceback" not in done.err
    assert done.capture.one("end")["reason"] == "exception"


# ---- other processes of the script ---------------------------------------------------------------------------------------------

WORKERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 10000
    def __getitem__(self, i):
        return torch.full((32,), float(i)), i % 10

def main():
    model = nn.Linear(32, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    loader = DataLoader(Numbers(), batch_size=16, num_workers=WORKERS, pin_memory=PIN, multiprocessing_context="CONTEXT")
    for x, y in loader:
        assert x.is_pinned() == PIN
        seen.append(int(x[0, 0]))
        assert x[-1, -1] == seen[-1] + 15
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)).backward()
        print("batches", seen, flush=True)
        optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("context", "pin"),
    [
        ("fork", False),
        pytest.param("fork", True, marks=pytest.mark.slow),
        ("spawn", True),
        pytest.param("forkserver", False, marks=pytest.mark.slow),
    ],
)
def test_data_workers(gpucast, context, pin):
    workers = 2 if context == "fork" else 1  # other workers import PyTorch anew
    script = WORKERS.replace("CONTEXT", context).replace("PIN", str(pin)).replace("WORKERS", str(workers))
    done = gpucast(script, fresh=(context, pin) == ("fork", True))
    assert done.code == 0, done.err
    assert "batches [0, 16, 32]" in done.err
    assert len(done.capture.marks("step")) == 3


@pytest.mark.once
def test_subprocesses_are_not_disturbed(gpucast):
    script = """
import subprocess, sys
out = subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(3).sum().item())"], capture_output=True, text=True, check=True)
assert out.stdout == "3.0\\n" and out.stderr == "", out
assert subprocess.run(["sh", "-c", "echo $((1 + 1))"], capture_output=True, text=True).stdout == "2\\n"
""" + train_script(after_step="assert subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout == '5\\n'")
    done = gpucast(script)
    assert done.code == 0, done.err


@pytest.mark.once
@pytest.mark.parametrize(("context", "fresh"), [pytest.param("fork", True, marks=pytest.mark.slow), ("fork", False), ("spawn", False)])
def test_training_in_a_child(gpucast, context, fresh):
    body = "\n".join("    " + line for line in train_script().splitlines())
    script = f"import multiprocessing, os\ndef train():\n{body}\nif __name__ == '__main__':\n    child = multiprocessing.Process(target=train)\n    child.start()\n    child.join()\n    open('after', 'w')\n"
    done = gpucast(script.replace("multiprocessing.Process", f"multiprocessing.get_context('{context}').Process"), fresh=fresh)
    assert done.code == 0, done.err
    assert len(done.capture.marks("step")) == 3
    assert not (gpucast.job / "after").exists()


# An actor that has used the GPU and waits for work, next to the process that trains.
ACTOR = """
import multiprocessing, time
import torch
def act(ready):
    torch.ones(1, device="cuda")
    ready.set()
    time.sleep(1000)
def train():
    TRAIN
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    context.Process(target=act, args=(ready,), daemon=True).start()
    ready.wait()
    train()
"""


@pytest.mark.once
def test_idle_process_does_not_hold_the_end_up(gpucast, leaves_nothing):
    run = gpucast(ACTOR.replace("TRAIN", train_script().replace("\n", "\n    ")), timeout=60)
    assert run.code == 0, run.err
    assert len(run.capture.marks("step")) == 3


@pytest.mark.once
def test_forked_child_leaves_the_capture_alone(gpucast):
    # The second child ends as Python does; after a backward PyTorch itself would keep it waiting for 10 s.
    script = train_script(after_step="if os.fork() == 0: os._exit(0)\nos.wait()")
    script = script.replace("for step", "import os\nif os.fork() == 0: raise SystemExit(3)\nos.wait()\nfor step")
    done = gpucast(script)
    assert done.code == 0, done.err
    assert len(done.capture.marks("step")) == 3


@pytest.mark.once
def test_torchrun(gpucast, gpucast_bin):
    done = gpucast(train_script(), command=[sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "train.py"])
    assert done.code == 0, done.err
    assert done.capture.one("process")["world_size"] == 1


@pytest.mark.once
def test_nothing_is_left_in_the_environment(gpucast_bin, tmp_path):
    """Outside a run the sitecustomize does nothing."""
    site = os.path.join(os.path.dirname(gpucast_bin), "../lib/gpucast/python/site")
    code = "import sys; print(any(name.startswith('_gpucast') for name in sys.modules), 'torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": site}
    env.pop("GPUCAST_SESSION", None)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stdout == "False False\n"

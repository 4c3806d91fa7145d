"""Captures of Megatron-LM's pretrain_gpt.py, one run for a row: a rank of each pipeline stage, the others simulated."""

import os
import subprocess
from pathlib import Path

# The first release that needs neither TransformerEngine nor a data set.
RELEASE = "core_v0.8.0"
VOCABULARY = 50256  # and the end of a document: GPT-2's 50,257
# The all-reduce of an input's gradient: this release always overlaps it with the weight's gradient. The measured program does not.
LAYERS = "megatron/core/tensor_parallel/layers.py"
OVERLAPPED = """                grad_input, group=get_tensor_model_parallel_group(), async_op=True
            )
"""
WAITED = OVERLAPPED + "            handle.wait()\n"


def add_options(parser):
    parser.add_argument("--megatron", type=Path, required=True, help=f"a git directory of NVIDIA/Megatron-LM with the tag {RELEASE}")
    parser.add_argument("--python", type=Path, required=True, help="of an environment with PyTorch and apex")
    parser.add_argument("--cache", type=Path, required=True, help="for captures, which are made once")


def checkout(repository, cache, waits=True):
    """Megatron's files of this release, with all-reduces that are waited for if `waits`, in `cache`: made once."""
    folder = cache / f"megatron-{RELEASE}{'-waits' if waits else ''}"
    if not folder.exists():
        folder.mkdir(parents=True)
        # An index of its own: the clone stays as it is.
        git = ["git", "--git-dir", str(repository), "--work-tree", str(folder), "checkout", RELEASE, "--", "."]
        subprocess.run(git, env=os.environ | {"GIT_INDEX_FILE": str(folder / "index")}, check=True)
        layers = folder / LAYERS
        if waits:
            layers.write_text(with_waits(layers.read_text()))
    return folder


def with_waits(layers):
    if layers.count(OVERLAPPED) != 1:
        raise SystemExit(f"{LAYERS} of Megatron-LM has {layers.count(OVERLAPPED)} overlapped all-reduces instead of one: is it {RELEASE}?")
    return layers.replace(OVERLAPPED, WAITED)


def arguments(row):
    """Megatron's example for 345M parameters (examples/gpt3) with the row's sizes.

    Without what the measured program does not do (all-reduces of tensor groups that overlap, gradients added in the product).
    """
    sizes = {
        "tensor-model-parallel-size": row.tp,
        "pipeline-model-parallel-size": row.pp,
        "num-layers": row.layers,
        "hidden-size": row.hidden,
        "num-attention-heads": row.heads,
        "seq-length": row.sequence,
        "max-position-embeddings": row.sequence,
        "micro-batch-size": row.micro_batch,
        "global-batch-size": row.global_batch,
        "train-iters": 50,
        "lr": 0.00015,
        "min-lr": 1.0e-5,
        "lr-decay-iters": 320000,
        "lr-decay-style": "cosine",
        "lr-warmup-fraction": 0.01,
        "weight-decay": 1e-2,
        "clip-grad": 1.0,
        "tokenizer-type": "NullTokenizer",
        "vocab-size": VOCABULARY,
        "split": "949,50,1",
        "log-interval": 1,
        "eval-interval": 1000,
        "eval-iters": 0,
        "transformer-impl": "local",
    }
    if row.recomputes:
        sizes |= {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    words += ["--mock-data", "--no-async-tensor-model-parallel-allreduce", "--no-gradient-accumulation-fusion"]
    return [*words, *(["--fp16"] if row.half else [])]


def name_of(row):
    sizes = f"h{row.hidden}_l{row.layers}_s{row.sequence}_g{row.global_batch}_m{row.micro_batch}"
    return f"{sizes}_n{row.gpus}_t{row.tp}_d{row.dp}_p{row.pp}"


def capture_files(row, folder):
    """`gpucast run -o NAME` writes its lowest rank to NAME itself."""
    first = folder / f"{name_of(row)}.gpucast"
    return [first] + [first.with_suffix(f".rank{rank}.gpucast") for rank in row.stage_ranks[1:]]


def capture(gpucast, row, python, program, folder):
    """(the captures of this row's stages, None), made unless they exist; or ([], the end of what was printed)."""
    files = capture_files(row, folder)
    if all(file.exists() for file in files):
        return files, None
    ranks = ",".join(map(str, row.stage_ranks))
    job = ["--gpu", row.card, "--gpus", str(min(row.gpus, row.gpus_per_node)), "--world-size", str(row.gpus), "--ranks", ranks]
    # The values on the card do not decide anything that takes time, and following them costs host time.
    command = [
        gpucast,
        "run",
        *job,
        "--steps",
        "2",
        "--values",
        "off",
        "--force",
        "-o",
        str(files[0]),
        "--",
        str(python),
        "pretrain_gpt.py",
    ]
    # As Megatron's examples set it; and its Makefile calls the Python on PATH.
    environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command + arguments(row), cwd=program, env=environment, capture_output=True, text=True)
    missing = [file.name for file in files if not file.exists()]
    return ([], done.stderr[-2000:] or f"no {missing}") if missing else (files, None)

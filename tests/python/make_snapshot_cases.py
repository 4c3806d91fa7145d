"""Makes the inputs of the golden cases tests/cases/snapshot_*: real snapshots, of PyTorch on the virtual GPU.

GPUCAST_BIN=build/release/bin/gpucast ENV/bin/python tests/python/make_snapshot_cases.py [NAME...]

Those in the repository: whole from PyTorch 2.6.0, the others from 2.14.1.
"""

import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import test_vgpu_libraries as on_vgpu

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from gpucast import libraries  # noqa: E402

CASES = Path(__file__).resolve().parent.parent / "cases"

TRAIN = """
torch.cuda.memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
other = torch.cuda.Stream()

def step(rows):
    optimizer.zero_grad()
    x = torch.randn(rows, 256).cuda()
    loss = F.cross_entropy(model(x), torch.zeros(rows, dtype=torch.long).cuda())
    loss.backward()
    optimizer.step()

for rows in ROWS:
    step(rows)
with torch.cuda.stream(other):
    kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
AT_END
torch.cuda.memory._dump_snapshot(os.environ["SNAPSHOT"])
os._exit(0)
"""

# name: rows of each batch, max_entries, settings, code before the dump
CASES_OF = {
    "whole": ([64, 256], 1_000_000, "", ""),
    "ring_buffer": ([64, 2048, 128], 80, "", "torch.cuda.empty_cache()"),
    "expandable": ([512], 1_000_000, "expandable_segments:True,roundup_power2_divisions:4", "torch.cuda.empty_cache()"),
}


def frame_lists(snapshot):
    for trace in snapshot["device_traces"]:
        yield from (event["frames"] for event in trace if "frames" in event)
    for segment in snapshot["segments"]:
        yield segment.get("frames", [])
        yield from (block["frames"] for block in segment["blocks"])


def main():
    folder = Path(os.environ["GPUCAST_BIN"]).resolve().parent.parent / "lib/gpucast/vgpu"
    build = on_vgpu.torch_build()
    for name in sys.argv[1:] or CASES_OF:
        rows, max_entries, settings, at_end = CASES_OF[name]
        case = CASES / f"snapshot_{name}"
        case.mkdir(exist_ok=True)
        script = TRAIN.replace("MAX_ENTRIES", str(max_entries)).replace("ROWS", repr(rows)).replace("AT_END", at_end)
        with tempfile.TemporaryDirectory() as temporary:
            profile = Path(temporary) / "profile"
            versions = libraries.library_versions(build.cuda, build.metadata())
            profile.write_text("".join(f"{key} = {value}\n" for key, value in {**on_vgpu.CARDS["sm_86"], **versions}.items()))
            program = f"exec(compile({on_vgpu.PRELUDE + script!r}, 'train.py', 'exec'))"
            env = dict(os.environ, VGPU=str(folder), VGPU_CUDA=f"cuda{build.cuda_major}", GPUCAST_VGPU_PROFILE=str(profile))
            env.update(PYTORCH_CUDA_ALLOC_CONF=settings, SNAPSHOT=str(Path(temporary) / "snapshot"))
            subprocess.run([sys.executable, "-c", program], env=env, check=True)
            snapshot = pickle.loads((Path(temporary) / "snapshot").read_bytes())
        for frames in frame_lists(snapshot):
            for frame in frames:  # hide where PyTorch was installed
                frame["filename"] = re.sub(r"^.*/(site-packages/)", r"/usr/lib/python3/\1", frame["filename"])
        data = pickle.dumps(snapshot)
        (case / "input.pickle").write_bytes(data)
        print(case, len(data))


if __name__ == "__main__":
    main()

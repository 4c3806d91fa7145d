#!/usr/bin/env python3
"""Write the lists of names that NVIDIA's libraries export: src/vgpu/symbols/cudaN/LIB.txt.

The virtual GPU exports every one of these names, so no PyTorch release meets an undefined symbol. A name without
our own code answers "not supported". Run this only to cover a new CUDA release:

    pip download --no-deps -d wheels nvidia-cublas nvidia-cudnn-cu13 ...   (unpack them)
    tools/vgpu_symbols.py --cuda 13 FOLDER_WITH_LIBRARIES...

Existing lists are extended, never cut. Needs `nm` and `readelf` (binutils).
"""

import argparse
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

# file name pattern -> (our library, names worth exporting)
LIBRARIES = {
    r"libcudart\.so\.\d+": ("cudart", r"^(cuda|__cuda)"),
    r"libcublas\.so\.\d+": ("cublas", r"^cublas"),
    r"libcublasLt\.so\.\d+": ("cublasLt", r"^cublas"),
    r"libcudnn\.so\.8": ("cudnn8", r"^cudnn"),
    r"libcudnn\.so\.(9|\d\d+)": ("cudnn", r"^cudnn"),
    r"libcufft\.so\.\d+": ("cufft", r"^cufft"),
    r"libcufile\.so\.\d+": ("cufile", r"^cuFile"),
    r"libcupti\.so\.\d+": ("cupti", r"^cupti"),
    r"libcurand\.so\.\d+": ("curand", r"^curand"),
    r"libcusolver\.so\.\d+": ("cusolver", r"^cusolver"),
    r"libcusparse\.so\.\d+": ("cusparse", r"^cusparse"),
    r"libcusparseLt\.so\.\d+": ("cusparseLt", r"^cusparseLt"),
    r"libnccl\.so\.\d+": ("nccl", r"^p?nccl"),
    r"libnvJitLink\.so\.\d+": ("nvJitLink", r"^_*nvJitLink"),
    r"libnvrtc\.so\.\d+": ("nvrtc", r"^nvrtc"),
    r"libnvshmem_host\.so\.\d+": ("nvshmem", r"^nvshmem"),
    r"libnvToolsExt\.so\.\d+": ("nvToolsExt", r"^nvtx"),
}


def exported(path: pathlib.Path) -> tuple[list[str], str]:
    """The names a library exports and the version node most of them carry ('' when none)."""
    out = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True, text=True, check=True).stdout
    names, nodes = [], {}
    for line in out.splitlines():
        _, kind, symbol = line.split(" ", 2)
        if kind not in "TWD":
            continue
        name, _, node = symbol.partition("@@")
        names.append(name)
        nodes[node] = nodes.get(node, 0) + 1
    return names, max(nodes, key=nodes.get)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", required=True, choices=["12", "13"])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    target = ROOT / "src/vgpu/symbols" / f"cuda{options.cuda}"
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(p for folder in options.folders for p in folder.rglob("*.so*")):
        for pattern, (library, wanted) in LIBRARIES.items():
            if not re.fullmatch(pattern, path.name):
                continue
            names, node = exported(path)
            listing = target / f"{library}.txt"
            old = listing.read_text().splitlines() if listing.exists() else []
            kept = {n for n in old if n and not n.startswith("#")} | {n for n in names if re.match(wanted, n)}
            listing.write_text(f"# soname {path.name}\n# node {node or '-'}\n" + "\n".join(sorted(kept)) + "\n")
            print(f"{listing.relative_to(ROOT)}: {len(kept)} names")


if __name__ == "__main__":
    main()

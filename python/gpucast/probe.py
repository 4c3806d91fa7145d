"""Runs for `gpucast doctor` in the user's Python: is PyTorch there, are our libraries in use, does a small job work?

Writes SESSION/doctor.json. Runs under the same environment as a captured script.
"""

import glob
import json
import os
import sys


def _record():
    found = {"python": sys.executable, "python_version": sys.version.split()[0], "problems": []}
    session = os.environ["GPUCAST_SESSION"]
    with open(os.path.join(session, "session.json"), encoding="utf-8") as file:
        library_dir = os.path.realpath(json.load(file)["library_dir"])
    found["hooks_loaded"] = "_gpucast" in sys.modules
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        found["torch"] = None
        return found
    found["torch"] = torch.__version__
    found["torch_folder"] = os.path.dirname(torch.__file__)
    found["cuda"] = torch.version.cuda
    site_packages = os.path.dirname(found["torch_folder"])
    found["nvidia_wheels"] = sorted(
        os.path.basename(path).rsplit(".dist-info", 1)[0]
        for path in glob.glob(os.path.join(glob.escape(site_packages), "nvidia_*.dist-info"))
    )
    if torch.version.cuda is None:
        return found
    found["cuda_available"] = torch.cuda.is_available()
    if found["cuda_available"]:
        _small_job(torch, found)
    found["torchvision"] = _torchvision()
    found["libraries"] = _libraries(library_dir)
    return found


def _small_job(torch, found):
    properties = torch.cuda.get_device_properties(0)
    found["gpu"] = {
        "name": properties.name,
        "total_memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
    }
    found["cudnn"] = torch.backends.cudnn.version()
    x = torch.ones(1024, 1024, device="cuda", requires_grad=True)
    (x @ x).sum().backward()
    torch.cuda.synchronize()
    found["small_job"] = {"allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}


def _torchvision():
    try:
        import torchvision

        return torchvision.__version__
    except ModuleNotFoundError:
        return None
    except Exception as error:
        return f"cannot be imported: {type(error).__name__}: {error}"


def _libraries(library_dir):
    """Shared libraries in this process: ours, and any of NVIDIA's that were loaded as well."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if ".so" in line and line.count("/") > 0}
    ours = sorted(os.path.basename(path) for path in paths if os.path.realpath(path).startswith(library_dir + os.sep))
    names = (
        "libcuda.so",
        "libcudart.so",
        "libcublas",
        "libcudnn",
        "libnccl",
        "libcufft",
        "libcurand",
        "libcusparse",
        "libcusolver",
        "libnvrtc",
    )
    foreign = sorted(
        path for path in paths if os.path.basename(path).startswith(names) and not os.path.realpath(path).startswith(library_dir + os.sep)
    )
    return {"ours": ours, "nvidia": foreign}


def main():
    try:
        found = _record()
    except Exception as error:
        found = {"python": sys.executable, "python_version": sys.version.split()[0], "failure": f"{type(error).__name__}: {error}"}
    path = os.path.join(os.environ["GPUCAST_SESSION"], "doctor.json")
    with open(path + ".tmp", "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(found, file)
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()

"""The PyTorch release, the versions that its libraries must report, and our libraries instead of NVIDIA's."""

import ctypes
import glob
import os
import re

from . import session

# The meaning of `cuda-toolkit==VERSION` in newer wheels, by CUDA release (the toolkit's own package metadata); also the
# fallback if a wheel names nothing. Libraries of one release differ only by patch versions.
_TOOLKIT = {
    "12.4": {"cublas": "12.4.5.8", "cufft": "11.2.1.3", "curand": "10.3.5.147", "cusolver": "11.6.1.9", "cusparse": "12.3.1.170"},
    "13.0": {"cublas": "13.1.1.3", "cufft": "12.0.0.61", "curand": "10.4.0.35", "cusolver": "12.0.4.66", "cusparse": "12.6.3.3"},
}
_FALLBACK = {
    12: {"cudnn": "9.1.0.70", "nccl": "2.21.5", "cusparselt": "0.6.2"},
    13: {"cudnn": "9.24.0.43", "nccl": "2.30.7", "cusparselt": "0.8.1"},
}
_CUDNN_8 = "8.9.2.26"  # of the last PyTorch releases that need cuDNN 8
_CUPTI = {"12.1": 18, "12.4": 22, "12.6": 24, "12.8": 26, "12.9": 28}  # CUPTI_API_VERSION; from CUDA 13 on it is the release itself


class TorchBuild:
    """The contents of torch/version.py. `cuda` is None for a CPU-only build."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
        self.version = _assigned(text, "__version__") or "unknown"
        self.cuda = _assigned(text, "cuda")
        self.hip = _assigned(text, "hip")
        self.cuda_major = int(self.cuda.split(".")[0]) if self.cuda else 0

    def wants_cudnn_8(self):
        """PyTorch before 2.4. A build from source does not name its cuDNN: then the release decides."""
        cudnn = required_versions(self.metadata()).get("cudnn")
        if cudnn:
            return int(cudnn.split(".")[0]) < 9
        release = re.match(r"(\d+)\.(\d+)", self.version)
        return release is not None and (int(release.group(1)), int(release.group(2))) < (2, 4)

    def metadata(self):
        """The text of the wheel's METADATA, or "" (a build from source)."""
        for path in sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(self.folder)), "torch-*.dist-info", "METADATA"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        return ""


def _assigned(text, name):
    match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None


def required_versions(metadata):
    """{"cudnn": "9.1.0.70", ...} from lines like `nvidia-cudnn-cu12 (==9.1.0.70) ; ...` and `nvidia-cublas==13.1.0.3`."""
    found = {}
    for name, version in re.findall(r"^Requires-Dist: nvidia-([a-z0-9-]+?)(?:-cu\d+)? ?\(?==([0-9.]+)", metadata, re.MULTILINE):
        found.setdefault(name, version)
    return found


def required_cudnn(build):
    """ "9.24.0.43": what this PyTorch was built for."""
    return required_versions(build.metadata()).get("cudnn") or (_CUDNN_8 if build.wants_cudnn_8() else _FALLBACK[build.cuda_major]["cudnn"])


def library_versions(cuda, metadata, cudnn=None):
    """Each library's own integer version, by the profile's keys. `cudnn`: used if the metadata names none."""
    major, minor = (int(part) for part in (cuda.split(".") + ["0"])[:2])
    same_major = [release for release in _TOOLKIT if int(release.split(".")[0]) == major]
    versions = dict(_FALLBACK[major])
    versions.update(_TOOLKIT.get(f"{major}.{minor}") or _TOOLKIT[same_major[-1]])
    if cudnn:
        versions["cudnn"] = cudnn
    versions.update(required_versions(metadata))

    def number(name, factor_major, factor_minor=100):
        parts = [int(part) for part in versions[name].split(".") if part] + [0, 0]
        return parts[0] * factor_major + parts[1] * factor_minor + parts[2]

    runtime = major * 1000 + minor * 10
    cudnn_9 = int(versions["cudnn"].split(".")[0]) >= 9
    return {
        "runtime_version": runtime,
        "driver_version": max(13000, runtime),
        "cudnn_version": number("cudnn", 10000 if cudnn_9 else 1000),
        "cublas_version": number("cublas", 10000),
        "nccl_version": number("nccl", 10000),
        "cusparselt_version": number("cusparselt", 1000),
        "cufft_version": number("cufft", 1000),
        "cusolver_version": number("cusolver", 1000),
        "cusparse_version": number("cusparse", 1000),
        "curand_version": number("curand", 1000),
        "cupti_version": _CUPTI.get(f"{major}.{minor}", 28) if major == 12 else major * 10000 + minor * 100 + 1,
    }


def write_profile(build, local_ranks=1, more=lambda base: {}):
    """PID.profile: the session's base profile, this PyTorch's versions, the capacity for its CUDA release, a card for each of this
    machine's ranks, and the lines of `more`."""
    with open(os.path.join(session.FOLDER, "profile.base"), encoding="utf-8") as file:
        lines = [file.read().rstrip("\n")]
    base = dict(re.findall(r"^(\w+) *= *(.*?) *$", lines[0], re.MULTILINE))
    values = library_versions(build.cuda, build.metadata(), required_cudnn(build))
    capacity = session.settings().get("capacity_bytes", {}).get(str(build.cuda_major))
    if capacity is not None:
        values["capacity_bytes"] = capacity
        values["context_bytes"] = max(0, int(base["total_memory_bytes"]) - capacity)
    # If a launcher starts more ranks on this machine than `--gpus` says, the job's real machine has the cards for them.
    values["devices"] = max(int(base.get("devices", 1)), local_ranks)
    lines += [f"{key} = {value}" for key, value in (values | more(lines[0])).items()]
    session.write("profile", "\n".join(lines) + "\n")
    return values


def load(build):
    """Loads every library of vgpu/cudaN into the global scope. From here on the loader finds these SONAMEs present."""
    folder = os.path.join(session.settings()["library_dir"], "vgpu")
    core = ctypes.CDLL(os.path.join(folder, "libgpucast_vgpu_core.so"), mode=ctypes.RTLD_GLOBAL)
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), f"cuda{build.cuda_major}", "*.so")))
    other_cudnn = "vgpu_cudnn.so" if build.wants_cudnn_8() else "vgpu_cudnn8.so"
    paths = [path for path in paths if os.path.basename(path) != other_cudnn]
    for path in paths:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return core, paths


def driver_folder(cuda_major):
    """The folder in which the virtual driver has the names libcuda.so.1 and libcuda.so, for linkers. Nothing is loaded from here: PyTorch
    searches /proc/self/maps for some of NVIDIA's file names."""
    return os.path.join(session.settings()["library_dir"], "vgpu", f"cuda{cuda_major}", "driver")


def supported_majors():
    folder = os.path.join(session.settings()["library_dir"], "vgpu")
    return sorted(int(name[4:]) for name in os.listdir(folder) if re.fullmatch(r"cuda\d+", name))


class UsedDevices(ctypes.Structure):
    """gpucast_vgpu_devices_used"""

    _fields_ = (("count", ctypes.c_int32), ("device", ctypes.c_int32 * 64))


UNKNOWN_COUNT = ctypes.CFUNCTYPE(None)
UNKNOWN_CONDITION = ctypes.CFUNCTYPE(ctypes.c_int)


def call_core():
    """The core's functions for the capture layer. PyDLL keeps the GIL: no other Python thread runs meanwhile."""
    core = ctypes.PyDLL(os.path.join(session.settings()["library_dir"], "vgpu", "libgpucast_vgpu_core.so"))
    core.gpucast_vgpu_mark.argtypes = [ctypes.c_int64]
    core.gpucast_vgpu_mark.restype = None
    core.gpucast_vgpu_used.restype = ctypes.c_int
    core.gpucast_vgpu_write_log.argtypes = [ctypes.c_char_p, ctypes.c_int]
    core.gpucast_vgpu_write_log.restype = ctypes.c_int
    core.gpucast_vgpu_issuing_cpu_ns.restype = ctypes.c_int64
    core.gpucast_vgpu_leave_out_cpu.argtypes = [ctypes.c_int64]
    core.gpucast_vgpu_leave_out_cpu.restype = None
    core.gpucast_vgpu_sample_cpu.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_int64]
    core.gpucast_vgpu_sample_cpu.restype = ctypes.c_int64
    core.gpucast_vgpu_leave_ranks.restype = None
    core.gpucast_vgpu_keep_memory_log.argtypes = [ctypes.c_char_p]
    core.gpucast_vgpu_keep_memory_log.restype = ctypes.c_int
    core.gpucast_vgpu_used_devices.restype = ctypes.POINTER(UsedDevices)
    core.gpucast_vgpu_skip_random.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    core.gpucast_vgpu_skip_random.restype = ctypes.c_int
    core.gpucast_vgpu_answer_reads.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_int]
    core.gpucast_vgpu_answer_reads.restype = None
    core.gpucast_vgpu_read_known.restype = ctypes.c_int
    core.gpucast_vgpu_note_count.argtypes = [ctypes.c_uint64, ctypes.c_int64]
    core.gpucast_vgpu_note_count.restype = None
    core.gpucast_vgpu_on_unknown_count.argtypes = [UNKNOWN_COUNT]
    core.gpucast_vgpu_on_unknown_count.restype = None
    core.gpucast_vgpu_on_unknown_condition.argtypes = [UNKNOWN_CONDITION]
    core.gpucast_vgpu_on_unknown_condition.restype = None
    core.gpucast_vgpu_uploads.restype = ctypes.c_uint64
    core.gpucast_vgpu_set_back.argtypes = [ctypes.c_int64]
    core.gpucast_vgpu_set_back.restype = None
    core.gpucast_vgpu_interruptions.restype = ctypes.POINTER(ctypes.c_int64 * 3)
    core.gpucast_vgpu_time_ahead_ns.restype = ctypes.c_int64
    core.gpucast_vgpu_yardstick_ns.restype = ctypes.c_int64
    core.gpucast_vgpu_host_clock_ns.argtypes = [ctypes.c_int]
    core.gpucast_vgpu_host_clock_ns.restype = ctypes.c_int64
    core.gpucast_vgpu_note_values.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
    core.gpucast_vgpu_note_values.restype = None
    core.gpucast_vgpu_known_values.restype = ctypes.c_uint64
    core.gpucast_vgpu_stored_numbers.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
    core.gpucast_vgpu_stored_numbers.restype = ctypes.c_int
    core.gpucast_vgpu_communicators.restype = ctypes.c_char_p
    core.gpucast_vgpu_hold.argtypes = [ctypes.c_int]
    core.gpucast_vgpu_hold.restype = None
    return core

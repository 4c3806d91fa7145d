"""The user's own cuDNN, which can be asked for the workspaces that it would choose. It is never loaded into this process; the virtual cuDNN
asks it through a helper (src/vgpu/libs/cudnn_ask.h)."""

import hashlib
import os
import re
import sys
from dataclasses import dataclass

from . import session

# Version of the kept answers, in addition to the profile: raise it with device_json() (src/vgpu/libs/cudnn_ask.cc) and answer()
# (src/vgpu/cudnn_helper.cc).
_ANSWERS_FORMAT = 2
OLDEST = (9, 8)  # answers without a GPU
_UNUSED_KEYS = ("enforce_capacity", "capacity_bytes", "context_bytes")  # of the profile: no answer depends on them


@dataclass
class Choice:
    """`library` and `version` of the one to ask; else `why` not: off, missing or old."""

    library: str = ""
    version: str = ""
    why: str = ""


class Unusable(Exception):
    """The user named a cuDNN and it is not available. args: message, what to do."""


def choose(torch_folder, required, cuda_major):
    """`required`: the version that this PyTorch wants, "9.24.0.43"."""
    wish = session.settings().get("cudnn", "off")
    if wish == "off":
        return Choice(why="off")
    package = f"nvidia-cudnn-cu{cuda_major}"
    by_path = wish not in ("auto", "ask")
    library = _below(wish) if by_path else _installed(torch_folder)
    if not library:
        if by_path:
            raise Unusable(f"there is no libcudnn.so.9 in {wish}", f"pip install --no-deps --target {wish} {package}")
        if wish == "ask":
            raise Unusable("cuDNN's wheel is not in this environment", f"pip install --no-deps {package}=={required}")
        return Choice(why="missing")
    version = _version(library)
    if version and tuple(map(int, version.split(".")[:2])) < OLDEST:
        if wish != "auto":
            raise Unusable(f"cuDNN {version} answers only on a GPU", newer(package))
        return Choice(version=version, why="old")
    return Choice(library, version)


def newer(package):
    return f"ask a newer one: pip install --no-deps --target cudnn '{package}>=9.8', then --cudnn ./cudnn"


def profile_entries(choice, base):
    """The lines about it in the virtual GPU's profile. `base`: the card's own lines."""
    if not choice.library:
        return {}
    return {"cudnn_library": choice.library, "cudnn_asked": choice.version, "cudnn_answers": _answers_file(choice, base)}


def _installed(torch_folder):
    """In the environment of the PyTorch that is being imported, where PyTorch itself looks for it."""
    for folder in (os.path.dirname(torch_folder), *sys.path):
        path = os.path.join(folder, "nvidia", "cudnn", "lib", "libcudnn.so.9")
        if os.path.exists(path):
            return path
    return ""


def _below(folder):
    for below in ("", "libcudnn.so.9", "lib/libcudnn.so.9", "cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn.so.9"):
        path = os.path.join(folder, below) if below else folder
        if os.path.isfile(path):
            return os.path.abspath(path)
    return ""


def _version(library):
    """ "9.24.1", from the header next to it or from the file's own name; "": unknown."""
    header = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(library))), "include", "cudnn_version.h")
    try:
        with open(header, encoding="utf-8", errors="replace") as file:
            found = dict(re.findall(r"^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) (\d+)", file.read(), re.MULTILINE))
        return ".".join(found[part] for part in ("MAJOR", "MINOR", "PATCHLEVEL"))
    except (OSError, KeyError):
        named = re.search(r"libcudnn\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(library))
        return named.group(1) if named else ""


def _answers_file(choice, base):
    """One file for each release and card. "": no file can be kept, so every run asks cuDNN again."""
    if not choice.version:
        return ""
    card = [line for line in base.splitlines() if not line.startswith(_UNUSED_KEYS)]
    name = next((line.partition("=")[2].strip() for line in card if line.startswith("name ")), "card")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    digest = hashlib.sha256("\n".join([f"format {_ANSWERS_FORMAT}", *card]).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "gpucast", "cudnn", choice.version)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return ""
    return os.path.join(folder, f"{slug}-{digest}.txt")

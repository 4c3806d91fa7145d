"""The wheel in clean environments: installed by pip, uv, uv tool and pipx, it gives the reports of the build tree.

    make test-wheel

GPUCAST_BIN is the build tree's command, GPUCAST_WHEEL the wheel, TORCH_PYTHONS the Pythons of environments that hold PyTorch, separated by spaces.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = Path(os.environ["GPUCAST_WHEEL"]).resolve()
BUILT = Path(os.environ["GPUCAST_BIN"]).resolve()
TORCH_PYTHONS = [Path(path).absolute() for path in os.environ["TORCH_PYTHONS"].split()]
TOOLS = Path(sysconfig.get_path("scripts"))
FITS = [ROOT / "examples/train_mlp.py", "--batch", "64", "--hidden", "512"]
DOES_NOT_FIT = ["-c", "import torch; torch.empty(20 << 30, dtype=torch.uint8, device='cuda')"]


def call(*words, code=0, **options):
    environment = {**os.environ, **options.pop("environment", {})}
    for name in ("GPUCAST_BIN", "PYTHONPATH"):
        environment.pop(name, None)
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=environment, timeout=300, **options)
    assert done.returncode == code, done.stderr
    return done.stdout


def report(command, torch_python, script, folder, code=0):
    """`gpucast run`, with the `python` of the environment with PyTorch."""
    path = f"{torch_python.parent}:{os.environ['PATH']}"
    words = ["run", "--gpu", "rtx3060", "--format", "json", "--", "python", *script]
    return json.loads(call(command, *words, code=code, cwd=folder, environment={"PATH": path}))


@pytest.fixture(scope="module", params=TORCH_PYTHONS, ids=lambda python: python.parent.parent.name)
def with_torch(request):
    return request.param


@pytest.fixture(scope="module", params=["pip", "uv"])
def installed(request, with_torch, tmp_path_factory):
    """A new environment that has PyTorch (another environment's, to save the download) and the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=request.param == "pip", symlinks=True)
    python = folder / "bin/python"
    site = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    borrowed = call(with_torch, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "torch_of_another_environment.pth").write_text(borrowed + "\n")
    if request.param == "pip":
        call(python, "-m", "pip", "install", "--quiet", "--no-index", WHEEL)
    else:
        call(TOOLS / "uv", "pip", "install", "--quiet", "--no-index", "--python", python, WHEEL)
    return python


def test_reports_are_the_build_trees(installed, tmp_path):
    for script, code in ((FITS, 0), (DOES_NOT_FIT, 1)):
        of_wheel = report(installed.parent / "gpucast", installed, script, tmp_path, code)
        assert of_wheel == report(BUILT, installed, script, tmp_path, code)
        assert of_wheel["verdict"] == ("does_not_fit" if code else "fits")


def test_doctor_is_content(installed, tmp_path):
    call(installed.parent / "gpucast", "doctor", "--python", installed, cwd=tmp_path)


def test_the_package_finds_its_command(installed, tmp_path):
    program = (
        "import gpucast, sys\n"
        f"report = gpucast.run([sys.executable, {str(ROOT / 'examples/train_mlp.py')!r}], gpu='l4')\n"
        "report.to_html('page.html')\n"
        "print(gpucast.__version__, report.gpu, report.fits, gpucast.command.find_command())\n"
    )
    printed = call(installed, "-c", program, cwd=tmp_path, environment={"PATH": "/usr/bin:/bin"}).split()
    version = call(installed.parent / "gpucast", "--version").split()[-1]
    assert printed == [version, "l4", "True", str(installed.parent / "gpucast")]
    assert Path(WHEEL).name.startswith(f"gpucast-{version}-")
    assert (tmp_path / "page.html").stat().st_size > 50_000


def test_uninstalling_leaves_nothing(with_torch, tmp_path):
    venv.create(tmp_path, with_pip=True, symlinks=True)
    before = files(tmp_path)
    call(tmp_path / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", WHEEL)
    assert files(tmp_path) - before
    call(tmp_path / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "gpucast")
    assert files(tmp_path) - before == set()


def files(folder):
    return {path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}


@pytest.mark.parametrize("installer", ["uv tool", "pipx", "pip --target"])
def test_the_command_has_an_environment_of_its_own(installer, tmp_path):
    """Without its own PyTorch; it runs the caller's PyTorch."""
    binaries = tmp_path / "bin"
    if installer == "uv tool":
        folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(binaries)}
        call(TOOLS / "uv", "tool", "install", "--quiet", "--offline", "--python", sys.executable, WHEEL, environment=folders)
    elif installer == "pipx":
        folders = {"PIPX_HOME": str(tmp_path / "tools"), "PIPX_BIN_DIR": str(binaries), "PIPX_MAN_DIR": str(tmp_path / "man")}
        call(TOOLS / "pipx", "install", "--quiet", "--python", sys.executable, WHEEL, environment=folders)
    else:
        call(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path, WHEEL)
    of_wheel = report(binaries / "gpucast", TORCH_PYTHONS[0], FITS, tmp_path)
    assert of_wheel == report(BUILT, TORCH_PYTHONS[0], FITS, tmp_path)


def test_the_tag_is_true():
    name = re.fullmatch(r"gpucast-[\d.]+-py3-none-manylinux2014_x86_64\.(manylinux_\d+_\d+_x86_64)\.whl", WHEEL.name)
    assert name
    shown = call(TOOLS / "auditwheel", "show", WHEEL)
    assert re.search(rf'is consistent with the following platform tag:\s*"{name[1]}"', shown), shown
    assert "libstdc++" not in shown  # nor any other C++ library


def test_licences_are_inside():
    with zipfile.ZipFile(WHEEL) as wheel:
        files = [name for name in wheel.namelist() if not name.endswith("/")]
        texts = {Path(name).name: wheel.read(name) for name in files if ".dist-info/licenses/" in name}
        installed = {name.split(".data/data/")[1] for name in files if ".data/data/" in name}
    third_party = [
        "CLI11",
        "fmt",
        "libcxx",
        "libcxxabi",
        "libunwind",
        "lz4",
        "nlohmann-json",
        "simdjson",
        "tomlplusplus",
        "uPlot",
        "zig",
        "zlib",
        "zstd",
    ]
    assert sorted(texts) == sorted(["LICENSE", *(f"{name}.txt" for name in third_party)])
    assert all(b"opyright" in text for text in texts.values())
    # Nothing outside the command's own folder: it would lie in every user's environment.
    assert {path.split("/")[:2] == ["libexec", "gpucast"] for path in installed} == {True}


def test_pytest_finds_the_plugin():
    with zipfile.ZipFile(WHEEL) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
        assert "[pytest11]\ngpucast = gpucast.pytest_plugin\n" in wheel.read(name).decode()

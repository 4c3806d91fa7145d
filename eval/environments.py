"""Environments of programs that are not ours: another PyTorch release, and packages of their own."""

import hashlib
import json
import shutil
import subprocess


def python_of(python, torch):
    """The main environment's, or that of another release in the same folder. `torch`: "" or the release."""
    return python.parent.parent.parent / f"torch-{torch}/bin/python" if torch else python


def packages_of(python, out, requirements):
    """The folder in OUT/packages with pip's `requirements`, installed at the first use, or None. `python` installs them."""
    if not requirements:
        return None
    folder = out / "packages" / hashlib.sha256(json.dumps([str(python), *requirements]).encode()).hexdigest()[:12]
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-warn-conflicts", "--target", partial, *requirements]
        subprocess.run(install, check=True)
        partial.rename(folder)
    return folder

"""Folders that the script makes for its results. A run that ends after a few steps leaves them empty, and takes them away again."""

import contextlib
import os

from . import patching

_made = []


def install():
    patching.wrap(os, "mkdir", _noting)


def _noting(real):
    def mkdir(path, *args, **kwargs):
        real(path, *args, **kwargs)
        if isinstance(path, (str, os.PathLike)) and kwargs.get("dir_fd") is None:
            with contextlib.suppress(OSError):  # there may be no current folder
                _made.append((os.getpid(), os.path.abspath(path)))

    return mkdir


def remove_empty():
    """The deepest first. What holds anything stays."""
    for pid, path in reversed(_made):
        if pid == os.getpid():
            with contextlib.suppress(OSError):
                os.rmdir(path)

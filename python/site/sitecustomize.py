"""Runs at the start of every Python that `gpucast run` starts: waits for `import torch`, then hands over to python/gpucast.

Outside such a run it only runs the sitecustomize that Python would have found without it.
"""

import os
import sys


def _load(name, path, package_folder=None):
    import importlib.util

    locations = [package_folder] if package_folder else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=locations)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _watch_for_torch(site_folder):
    # A private name, so that a package called gpucast in the user's environment is not affected.
    folder = os.path.join(os.path.dirname(site_folder), "gpucast")
    _load("_gpucast", os.path.join(folder, "__init__.py"), folder)
    from _gpucast import importhook

    importhook.install()


def _run_next_sitecustomize(site_folder):
    from importlib.machinery import PathFinder

    others = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != site_folder]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # the same as without us
    spec.loader.exec_module(module)


_site_folder = os.path.dirname(os.path.realpath(__file__))
if os.environ.get("GPUCAST_SESSION"):
    try:
        _watch_for_torch(_site_folder)
    except Exception as _error:  # the user's program matters more than the capture
        sys.stderr.write(f"gpucast: cannot watch this Python: {type(_error).__name__}: {_error}\n")
_run_next_sitecustomize(_site_folder)

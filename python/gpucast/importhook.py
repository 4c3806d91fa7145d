"""Notices imports: `torch` (load the virtual GPU first, arm after), its compiler, other users of CUDA, and modules that write checkpoints."""

import os
import sys

from . import late_compiler, made_files, session

# Packages that load CUDA without torch, possibly before torch is imported.
_CUDA_USERS = ("pynvml", "cupy", "cuda", "numba.cuda")
# Patched right after they are imported.
_CHECKPOINT_WRITERS = (
    "safetensors.torch",
    "torch.distributed.checkpoint.state_dict_saver",
    "torch.distributed.checkpoint",
    "transformers.modeling_utils",
    "transformers.trainer",
    "lightning.fabric.utilities.cloud_io",
    "lightning_fabric.utilities.cloud_io",
)
_TRAINING_LOOPS = ("lightning.pytorch.loops.training_epoch_loop", "pytorch_lightning.loops.training_epoch_loop")
# A third of all modules of a run, imported with the first optimizer; a child of the fork server already has them.
_COMPILER = "torch._dynamo"
# The class of compiled code, in newer and older releases; the choice between kernels; constants.
_INDUCTOR = (
    "torch._inductor.output_code",
    "torch._inductor.codecache",
    "torch._inductor.select_algorithm",
    "torch._inductor.fx_passes.joint_graph",
)
# Holds the code of kernels in Triton, before it is loaded; launches them.
_TRITON = ("triton.compiler.compiler", "triton.runtime.jit")
_FLEX_ATTENTION = "torch.nn.attention.flex_attention"
_GENERATION = ("transformers.generation.stopping_criteria", "transformers.generation.utils")
_LAUNCHER = ("torch.distributed.launcher.api", "torch.distributed.elastic.agent.server.api")
_WATCHED = frozenset(
    (
        *("torch", _COMPILER, _FLEX_ATTENTION, *_TRITON, *_INDUCTOR, *_LAUNCHER),
        *(*_GENERATION, *_CUDA_USERS, *_CHECKPOINT_WRITERS, *_TRAINING_LOOPS),
    )
)


class _Finder:
    """First on sys.meta_path. Lets the others find the module, then wraps the loader's exec_module once."""

    def __init__(self):
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _WATCHED or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = self._find(name, path, target)
            if spec is None:
                if name == "torch":
                    _torch_missing()
                return None
            _wrap(name, spec)
            return spec
        finally:
            self._busy.discard(name)

    def _find(self, name, path, target):
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _wrap(name, spec):
    loader = spec.loader
    real = getattr(loader, "exec_module", None)
    if real is None:
        return
    shadowed = getattr(loader, "__dict__", {}).get("exec_module")

    def exec_module(module):
        if module.__name__ != name:  # a loader shared between modules
            real(module)
            return
        # Ours stands before the class's for this one call.
        if shadowed is None:
            del loader.exec_module
        else:
            loader.exec_module = shadowed

        def execute():
            _before(name, spec)
            real(module)
            _after(name, module)

        if name == _COMPILER:
            late_compiler.postpone(module, execute)
        else:
            execute()

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader that takes no attributes
        return


def _before(name, spec):
    if name == "torch":
        _guarded(lambda: _capture().before_torch(spec.origin))
    elif name in _CUDA_USERS:
        _guarded(_load_for_other_user)


def _after(name, module):
    if name == "torch":
        _guarded(lambda: _capture().after_torch(module))
    elif name == _COMPILER:
        _guarded(lambda: _capture().after_large_import())
    elif name in _INDUCTOR:
        _guarded(lambda: _capture().after_inductor(name, module))
    elif name in _TRITON:
        _guarded(lambda: _capture().after_triton(name, module))
    elif name == _FLEX_ATTENTION:
        _guarded(lambda: _capture().after_flex_attention(module))
    elif name in _LAUNCHER:
        _guarded(lambda: _capture().after_launcher(name, module))
    elif name in _GENERATION:
        _guarded(lambda: _capture().after_generation(name, module))
    elif name in _TRAINING_LOOPS:
        _guarded(lambda: _capture().after_training_loop(name, module))
    elif name in _CHECKPOINT_WRITERS:
        _guarded(lambda: _capture().after_checkpoint_writer(name, module))


def _capture():
    if session.mode() == "profile":
        from . import profile_capture

        return profile_capture
    from . import capture

    return capture


def _load_for_other_user():
    from importlib.machinery import PathFinder

    if "torch" not in sys.modules:
        spec = PathFinder.find_spec("torch")
        if spec is not None and spec.origin:
            _capture().before_torch(spec.origin)


def _torch_missing():
    _guarded(lambda: session.error("torch_missing", "PyTorch is not installed in this Python", final=False, python=sys.executable))


def _guarded(function):
    try:
        function()
    except Exception as error:
        sys.stderr.write(f"gpucast: internal error in the capture layer: {type(error).__name__}: {error}\n")
        if os.environ.get("GPUCAST_DEBUG"):
            import traceback

            traceback.print_exc()


def announce():
    session.write("python", {"executable": sys.executable, "version": sys.version.split()[0]})


def install():
    announce()
    if session.settings().get("leaves_no_files"):
        _guarded(made_files.install)
    if session.mode() == "clock":
        from . import clock

        clock.install_at_start()
    sys.meta_path.insert(0, _Finder())

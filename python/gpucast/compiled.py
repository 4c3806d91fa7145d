"""Compiled programs and CUDA graphs: optimizer steps taken inside of them, where no hook runs, and the compiler's caches."""

import ctypes
import os
import threading
import weakref

from . import compiled_numbers, folded_constants, patching, process, shadow_values, steps

_torch = None
_before_step = None  # called with an optimizer, like PyTorch's own hooks
_after_step = None
_capturing = threading.local()  # .optimizers: those that stepped in the CUDA graph that this thread captures
_steps_of_graph = weakref.WeakKeyDictionary()  # torch.cuda.CUDAGraph -> optimizers (weak references) whose step it replays
_parameter_of = weakref.WeakKeyDictionary()  # optimizer -> the parameter (weak reference) whose update counts as its step
_steps_of_code = {}  # id of compiled code -> (weak reference to it, the optimizers alive then, the optimizers whose step it takes)

_OWN_FOLDER = os.path.join("gpucast", "inductor-2")  # in older ones constants are wrong


def install_at_import(torch, before_step, after_step):
    global _torch, _before_step, _after_step
    _torch, _before_step, _after_step = torch, before_step, after_step


def install_at_cuda_start(hooks_of_ours):
    """`hooks_of_ours`: the number of our own global module hooks, before and after a forward."""
    patching.wrap(_torch.nn.modules.module, "_has_any_global_hook", lambda real: _has_other_hook(*hooks_of_ours))
    graph = _torch.cuda.CUDAGraph
    patching.wrap(graph, "capture_begin", _beginning_capture)
    patching.wrap(graph, "capture_end", _ending_capture)
    patching.wrap(graph, "replay", _replaying)


# ---- caches ----------------------------------------------------------------------------------------------------------------------


def use_own_cache():
    """Inductor keeps the fastest kernel's name together with the code. Here times are not real, and such measurements must not reach a run on
    a real card. So its cache is in a separate folder. The folder stays, so the next run starts warm."""
    folder = (
        os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    )
    if not folder.endswith(_OWN_FOLDER):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, _OWN_FOLDER)


# ---- Triton ------------------------------------------------------------------------------------------------------------------------


def patch_triton(name, module, core):
    """The driver gets only the machine code of a kernel. This gives the virtual GPU's core the PTX that it was made from, and the whole
    numbers that a launch gets if their values are followed: a kernel may find its addresses and loops by them."""
    if name.endswith(".jit"):
        patching.wrap(module.JITFunction, "run", lambda real: _telling_values(real, core))
    else:
        patching.wrap(module.CompiledKernel, "_init_handles", lambda real: _telling_code(real, core))


def _telling_values(real, core):
    def run(self, *args, **kwargs):
        if not shadow_values.on():
            return real(self, *args, **kwargs)
        began_ns = shadow_values.now_ns()
        arguments = (*args, *kwargs.values())
        with shadow_values.not_followed():  # Triton asks each tensor for its type and address: nothing to follow
            patching.safely(lambda: shadow_values.tell_numbers(arguments, core))
            shadow_values.spent_since(began_ns)
            result = real(self, *args, **kwargs)
            began_ns = shadow_values.now_ns()
            patching.safely(lambda: shadow_values.take_stored(arguments, core))
        shadow_values.spent_since(began_ns)
        return result

    return run


def _telling_code(real, core):
    def _init_handles(self):
        if self.module is None:
            patching.safely(lambda: _tell_code(core, self.asm))
        return real(self)

    return _init_handles


def _tell_code(core, asm):
    image, ptx = asm["cubin"], asm["ptx"].encode()
    core.gpucast_vgpu_note_code(image, ctypes.c_uint64(len(image)), ptx, ctypes.c_uint64(len(ptx)))


# ---- torch.compile ---------------------------------------------------------------------------------------------------------------


def _has_other_hook(before_forward, after_forward):
    """OptimizedModule warns if global hooks exist, because they run for it too. Our hooks can handle this."""

    def has_any_global_hook():
        module = _torch.nn.modules.module
        return (
            len(module._global_forward_pre_hooks) > before_forward
            or len(module._global_forward_hooks) > after_forward
            or bool(module._global_backward_pre_hooks or module._global_backward_hooks)
        )

    return has_any_global_hook


def patch_inductor(name, module, core):
    """A module of torch._inductor, right after it was imported."""
    if name.endswith(".joint_graph"):
        folded_constants.patch(module)
    if name.endswith(".codecache"):
        compiled_numbers.patch(module, core)
    if name.endswith(".select_algorithm"):
        patching.wrap(module.AlgorithmSelectorCache, "__call__", lambda real: _choosing(real, module.ExternKernelCaller))
        return
    kind = getattr(module, "CompiledFxGraph", None)
    if kind is not None and not hasattr(kind.__call__, "__wrapped__"):
        patching.wrap(kind, "__call__", lambda real: _running(real, core))


def _running(real, core):
    def __call__(self, inputs):
        if shadow_values.on():
            began_ns = shadow_values.now_ns()
            with shadow_values.not_followed():
                patching.safely(lambda: shadow_values.tell_numbers(inputs, core))
            shadow_values.spent_since(began_ns)
        optimizers = _stepped_by(self, inputs) if process.job_is_captured() and getattr(self, "mutated_input_idxs", None) else ()
        return _with_steps(optimizers, lambda: real(self, inputs)) if optimizers else real(self, inputs)

    return __call__


@patching.guard("compiled_step", process.job_is_captured)
def _stepped_by(code, inputs):
    """The optimizers whose step this code takes: it changes their parameters."""
    if steps.inside.optimizer is not None:  # an eager step that calls compiled code
        return ()
    alive = steps.counter.alive()
    kept = _steps_of_code.get(id(code))
    if kept is not None and [reference() for reference in kept[1]] == alive:
        return [reference() for reference in kept[2]]
    changed = {inputs[place].data_ptr() for place in code.mutated_input_idxs if isinstance(inputs[place], _torch.Tensor)}
    found = [optimizer for optimizer in alive if _counted_parameter(optimizer, changed)]
    key = id(code)
    reference = weakref.ref(code, lambda _: _steps_of_code.pop(key, None))
    _steps_of_code[key] = (reference, [weakref.ref(one) for one in alive], [weakref.ref(one) for one in found])
    return found


def _counted_parameter(optimizer, changed):
    """One step may be spread over several pieces of code: the code that changes this parameter counts."""
    kept = _parameter_of.get(optimizer)
    parameter = kept and kept()
    if parameter is not None:
        return parameter.data_ptr() in changed
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.is_cuda and parameter.numel() and parameter.data_ptr() in changed:
                _parameter_of[optimizer] = weakref.ref(parameter)
                return True
    return False


def _with_steps(optimizers, run):
    for optimizer in optimizers:
        _before_step(optimizer, (), {})
    result = run()
    for optimizer in optimizers:
        _after_step(optimizer, (), {})
    return result


# ---- max-autotune ----------------------------------------------------------------------------------------------------------------


def _choosing(real, library_kernel):
    """max-autotune compiles tens of kernels for each product of matrices and chooses the fastest. Here all are equally fast, and
    compiling takes minutes: the library's kernel is used if there is one."""

    def __call__(self, name, choices, *args, **kwargs):
        of_library = [choice for choice in choices if isinstance(choice, library_kernel)] if process.job_is_captured() else ()
        if of_library and len(choices) > 1:
            process.recorder.warn(
                "autotuning_left_out",
                "torch.compile's max-autotune measures which kernel is fastest; the virtual GPU has no such times: the library's kernels "
                "(cuBLAS, cuDNN) were used, and the memory of the measurements themselves is not in the peak",
            )
            choices = of_library[:1]
        return real(self, name, choices, *args, **kwargs)

    return __call__


# ---- CUDA graphs -----------------------------------------------------------------------------------------------------------------


def captured(optimizer):
    """Whether the step that `optimizer` has just taken only went into a CUDA graph."""
    optimizers = getattr(_capturing, "optimizers", None)
    if optimizers is None:
        return False
    optimizers.append(weakref.ref(optimizer))
    return True


def _beginning_capture(real):
    def capture_begin(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        _capturing.optimizers = []
        return result

    return capture_begin


def _ending_capture(real):
    def capture_end(self):
        optimizers, _capturing.optimizers = getattr(_capturing, "optimizers", None), None
        result = real(self)
        if optimizers:
            _steps_of_graph[self] = optimizers
        return result

    return capture_end


def _replaying(real):
    def replay(self):
        optimizers = _steps_of_graph.get(self)
        if not optimizers or not process.job_is_captured():
            return real(self)
        return _with_steps([one for one in (reference() for reference in optimizers) if one is not None], lambda: real(self))

    return replay

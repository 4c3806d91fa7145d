"""One process's capture: from `import torch` over the first CUDA call to the end."""

import atexit
import contextlib
import functools
import gc
import os
import platform
import sys
import threading
import time
from collections import OrderedDict

from . import (
    block_masks,
    checkpoints,
    clock,
    compiled,
    copies,
    cudnn,
    ending,
    groups,
    growth,
    history,
    hooks,
    horizon,
    imagined_ranks,
    initialisation,
    libraries,
    loader,
    operators,
    patching,
    places,
    process,
    session,
    shadow_values,
    steps,
    tensors,
    unobserved,
    values,
    what_if,
    whole_run,
)

_versions = {}  # of the libraries that this PyTorch is built for
_cudnn = cudnn.Choice()
_core = None
_installed = False  # work that a process needs once: false in a fresh process, true in a child of the fork server
_end_lock = threading.Lock()


# ---- import torch ------------------------------------------------------------------------------------------------------------


def before_torch(origin):
    """`origin`: the path of torch/__init__.py, which has not run yet."""
    global _versions, _cudnn, _core
    if process.state is not None or not origin:
        return
    process.state = process.WATCHING
    build = process.build = libraries.TorchBuild(os.path.dirname(origin))
    session.write("torch", {"version": build.version, "cuda": build.cuda, "hip": build.hip, "python": sys.executable})
    known = libraries.supported_majors()
    if build.cuda is None:
        kind = "rocm_torch" if build.hip else "cpu_only_torch"
        ending.give_up(kind, f"PyTorch {build.version} is {'a ROCm' if build.hip else 'a CPU-only'} build")
        return
    if build.cuda_major not in known:
        wanted = " and ".join(map(str, known))
        ending.give_up("unknown_cuda", f"PyTorch {build.version} is built for CUDA {build.cuda}; gpucast knows CUDA {wanted}")
        return
    try:
        _cudnn = cudnn.choose(build.folder, libraries.required_cudnn(build), build.cuda_major)
    except cudnn.Unusable as problem:
        ending.give_up("cudnn_unusable", problem.args[0], to_do=problem.args[1])
        return
    _versions = libraries.write_profile(build, process.ranks()["local_world_size"], lambda base: cudnn.profile_entries(_cudnn, base))
    os.environ["GPUCAST_VGPU_PROFILE"] = session.path("profile")
    # Triton links its launchers to a file with the driver's name. A file that the user names would only be linked to, too.
    os.environ["TRITON_LIBCUDA_PATH"] = libraries.driver_folder(build.cuda_major)
    # Inductor's code for AOTInductor links to `-lcuda`; a driver's installation puts that into the linkers' search path.
    # A process forked or started by this one has it already.
    folders = os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    if os.environ["TRITON_LIBCUDA_PATH"] not in folders:
        os.environ["LIBRARY_PATH"] = os.pathsep.join((*filter(None, folders), os.environ["TRITON_LIBCUDA_PATH"]))
    compiled.use_own_cache()
    libraries.load(build)
    _core = libraries.call_core()
    if session.mode() == "clock":
        clock.follow(_core)
    if session.mode() in ("doctor", "clock") or _installed:
        return
    # Registered before anything of PyTorch's and the user's, so it runs after all of theirs, while CUDA still works.
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    ending.watch_for_exceptions()
    ending.watch_for_os_exit(_before_os_exit)


def after_torch(module):
    global _installed
    torch = process.torch = module
    process.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or torch._utils.is_compiling
    if process.state != process.WATCHING or session.mode() == "doctor":
        return
    if session.mode() == "clock":
        initialisation.install(torch, _core.gpucast_vgpu_skip_random)
        clock.install(torch)
        return
    if not _installed:
        patching.safely(ending.keep_sockets_in_session)
        process.issuing_cpu_ns = _core.gpucast_vgpu_issuing_cpu_ns
        hooks.install_at_import(torch, _enough)
        operators.measure_speed(_core.gpucast_vgpu_yardstick_ns)
        operators.when_observed = functools.partial(groups.look, _core)
        initialisation.install(torch, _core.gpucast_vgpu_skip_random)
        values.install_at_import(torch, _core)
        horizon.install(torch)
        loader.install(torch)
    imagined_ranks.install(torch)
    what_if.install_at_import(torch)
    if _installed:
        return
    _installed = True
    if torch.cuda.is_initialized():
        arm()
    else:
        torch.cuda._lazy_call(arm)


def after_checkpoint_writer(name, module):
    if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
        checkpoints.patch_writer(name, module)
        horizon.patch_trainer(name, module)
    after_training_loop(name, module)


def after_training_loop(name, module):
    if process.state in (process.WATCHING, process.CLOCKED) and whole_run.wanted():
        whole_run.patch(name, module)


def after_inductor(name, module):
    if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
        compiled.use_own_cache()  # the script may have named a folder since torch was imported
        compiled.patch_inductor(name, module, _core)


def after_triton(name, module):
    if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
        compiled.patch_triton(name, module, _core)


def after_flex_attention(module):
    if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
        block_masks.patch(module, _core)


def after_launcher(name, module):
    if process.state == process.WATCHING:
        imagined_ranks.patch_launcher(name, module)


def after_generation(name, module):
    if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
        values.patch_generation(name, module)


def after_large_import():
    shadow_values.leave_compiler_alone()
    if process.state == process.ARMED:
        _forget_past_garbage()


# ---- first CUDA call -----------------------------------------------------------------------------------------------------------


def arm():
    """Runs inside PyTorch's own CUDA initialisation, before its first allocation. Must not raise."""
    if process.state != process.WATCHING or process.is_data_worker():
        return
    torch = process.torch
    try:
        if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
            raise RuntimeError("PYTORCH_NO_CUDA_MEMORY_CACHING turns it off")
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=sys.maxsize)
        _core.gpucast_vgpu_keep_memory_log(os.fsencode(session.path("memory")))  # for a process that is killed; it may fail
        process.recorder.arm(torch._C._cuda_memoryStats, _core.gpucast_vgpu_mark, _core.gpucast_vgpu_used_devices().contents)
        hooks.install_at_cuda_start(torch)
        values.install_at_cuda_start(torch)
        initialisation.forget()
        what_if.install_at_cuda_start()
        process.state = process.ARMED
        session.write("armed", process.ranks())
        if process.when_armed:
            process.when_armed()
        if session.settings().get("deadline_unix_s"):
            threading.Thread(target=_end_at_deadline, name="gpucast-timeout", daemon=True).start()
        _forget_past_garbage()
    except Exception as error:
        ending.give_up(
            "cannot_arm", f"PyTorch {process.build.version} does not let its allocator be recorded: {type(error).__name__}: {error}"
        )


def _forget_past_garbage():
    """When Python next collects garbage decides when tensors in reference cycles are freed. From here on that depends on the script
    alone and not on earlier imports, so all runs are alike, also in children of the fork server."""
    if not gc.isenabled():
        return
    # Objects from Python's lists of free tuples, lists and dicts do not count as allocated: fill these lists.
    full = [tuple([None] * size) for size in range(1, 21) for _ in range(2000)], [[] for _ in range(100)], [{} for _ in range(100)]
    del full
    gc.collect(1)


def _end_at_deadline():
    pid = os.getpid()
    while process.state == process.ARMED and os.getpid() == pid:
        left = session.settings()["deadline_unix_s"] - time.time()
        if left <= 0:
            end("timeout")
            return
        time.sleep(min(left, 1.0))


# ---- the end -------------------------------------------------------------------------------------------------------------------


def end(reason, exit_code=0, step_ended=False):
    """Writes the capture. Does not return for `steps` and `timeout`: the process stands still until it is killed. But if a step has just
    ended, and the next ones are short, they run first, unobserved."""
    with _end_lock:
        if process.state != process.ARMED:
            return
        if reason == "steps" and not process.recorder.devices_allocated_on():
            # Optimizers ask CUDA whether a graph is being captured, also where all parameters are on the CPU.
            process.state = process.WATCHING
            _end_without_cuda()
        process.state = process.ENDED
    done = ending.written("capture", _write_capture, reason, exit_code)
    complete = functools.partial(_complete, reason, done)
    if not (step_ended and done["reason"] == reason and patching.safely(_goes_on_unobserved, complete, done)):
        complete()


def _goes_on_unobserved(complete, done):
    """Values that are followed take far more of the host's time than PyTorch, so they are not. A step may then do something else:
    its time counts in proportion to its work (src/work/host_time.cc)."""
    if not session.settings().get("measure_host") or not unobserved.fits():
        return False
    shadow_values.end()
    hooks.leave_modules_alone()
    process.torch.cuda.memory._record_memory_history(enabled=None)
    process.recorder.tensors.clear()
    loader.keep()
    session.write("written", done)
    process.state = process.UNOBSERVED
    unobserved.begin(_core, functools.partial(_complete_once, complete))
    return True


def _complete_once(complete):
    with _end_lock:
        if process.state != process.UNOBSERVED:
            return
        process.state = process.ENDED
    complete()


def _complete(reason, done):
    _core.gpucast_vgpu_leave_ranks()
    paths = [session.path(("" if index == 0 else f"device{device}.") + "history") for index, device in enumerate(done.get("devices", ()))]
    patching.safely(unobserved.append, paths)
    patching.safely(loader.append, paths, reason, session.settings().get("measure_loader", False))
    session.write("done", done)
    if reason in ("steps", "timeout"):
        _core.gpucast_vgpu_hold(session.settings()["supervisor_pid"])
    ending.wait_for_go()


def _enough(step_ended):
    """The wanted steps have been taken."""
    if process.state == process.ARMED:
        end("steps", step_ended=step_ended)
    else:
        _end_without_cuda()


def _write_capture(reason, exit_code):
    if reason != "steps":
        tensors.mark_gradients()
    operators.finish()
    shadow_values.finish()
    _look_around(reason)
    # Counters first: at a time limit the script's own thread goes on meanwhile.
    devices = process.recorder.devices_allocated_on() or [0]
    stats = {device: process.torch._C._cuda_memoryStats(device) for device in devices}
    with _without_importing_inductor():
        snapshot = process.torch.cuda.memory._snapshot()
    ranks = process.ranks()
    holders = growth.record(snapshot, runs=reason == "steps")
    for device in devices:
        part = "" if device == devices[0] else f"device{device}."
        _write_history(session.path(part + "history"), reason, exit_code, ranks, device, stats[device], snapshot, holders)
        path = session.path(part + "vgpu")
        problem = _core.gpucast_vgpu_write_log(os.fsencode(path), device)
        if problem:
            raise OSError(problem, os.strerror(problem), path)
    return {"rank": ranks["rank"], "devices": devices}


@contextlib.contextmanager
def _without_importing_inductor():
    """PyTorch looks up stacks of Inductor's code as `torch._inductor.codecache` and so imports it: seconds for a script that never did."""
    if "torch._inductor" in sys.modules:
        yield
        return
    attributes = vars(process.torch)
    attributes["_inductor"] = None
    try:
        yield
    finally:
        attributes.pop("_inductor", None)


def _look_around(reason):
    """Facts that only a look at all of Python's objects shows."""
    torch = process.torch
    try:
        modules, loaders, collections = [], [], []
        lists = {list: collections, dict: collections, OrderedDict: collections}  # and where objects of a known class go
        for one in gc.get_objects():
            kind = type(one)
            if kind not in lists:
                bases = ((torch.nn.Module, modules), (torch.utils.data.DataLoader, loaders))
                lists[kind] = next((found for base, found in bases if issubclass(kind, base)), None)
            if lists[kind] is not None:
                lists[kind].append(one)
        copies.mark(modules, collections)
        if reason == "steps":
            horizon.warn(loaders)
        collections.clear()  # it holds all lists, itself too: a cycle that would look like a holder
    except Exception as error:
        patching.fail("end", error)


def _end_without_cuda():
    """The script trains, but not on CUDA: say so now, before it trains on for hours."""
    if process.state == process.WATCHING:
        ending.give_up("cuda_not_used", "the script has taken its optimizer steps without using CUDA")


def _write_history(path, reason, exit_code, ranks, device, stats, snapshot, holders):
    position = process.recorder.position_on(device, stats) if device in process.recorder.devices else (0, 0)
    events = history.until(snapshot["device_traces"][device], *position)
    whole = len(events) == len(snapshot["device_traces"][device])
    process_record = {
        "record": "process",
        "pid": os.getpid(),
        **{name: ranks[name] for name in ("rank", "local_rank", "world_size")},
        "argv": list(getattr(sys, "argv", [])),
        "python": platform.python_version(),
        "torch": process.build.version,
        "cuda": process.build.cuda,
        "torch_folder": process.build.folder,
        "cudnn": _versions.get("cudnn_version", 0),
        "cudnn_required": libraries.required_cudnn(process.build),
        "cudnn_asked": _cudnn.version if _cudnn.library else "",
        "cudnn_not_asked": _cudnn.why,
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "device": device,
        **what_if.record(),
        **places.record(),
    }
    end_record = {
        "record": "end",
        "reason": reason,
        "exit_code": exit_code,
        "optimizer_steps": steps.counter.rounds,
        "torch_stats": hooks.torch_stats(device, stats),
    }
    if whole:  # otherwise the segments belong to a later moment
        end_record["segments"] = [
            [segment["address"], segment["total_size"], segment["stream"], segment["segment_type"]]
            for segment in snapshot["segments"]
            if segment.get("device", device) == device
        ]
    with open(path + ".tmp", "w", encoding="utf-8", errors="backslashreplace") as file:
        records = [record for record in (process_record, groups.record(), holders) if record]
        history.write(file, records, process.recorder, operators.lines(), device, events, end_record)
    os.replace(path + ".tmp", path)


def _at_exit():
    unobserved.end()
    if process.state != process.ARMED:
        return
    ending.read_last_exception()
    if not process.recorder.devices_allocated_on():
        # It only asked about the GPU (a check in a shell script): not the job to report.
        session.remove("armed")
        session.write("idle")
        return
    if ending.exception:
        values.after_exception(*ending.exception)
    end("exception" if ending.exception else "script_end", exit_code=1 if ending.exception else 0)


def _before_os_exit(status):
    unobserved.end()
    if process.state == process.ARMED:
        end("script_end", exit_code=status)


def _after_fork_in_child():
    global _end_lock
    _end_lock = threading.Lock()
    if process.state not in (None, process.WATCHING):  # None: a fork server's job that has not imported torch yet
        process.state = process.OFF

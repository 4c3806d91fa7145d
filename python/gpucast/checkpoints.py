"""The script must not write checkpoints: the virtual GPU computes nothing, so their values would be meaningless."""

import json
import os
import struct

from . import initialisation, made_files, patching, process, unwritten_files, whole_run

_unwritten = []
_torch = None
_save = None  # the real torch.save
why_unwritten = "values on the virtual GPU are not real"
from_the_start = False  # a profile: there never is anything on a card


def install(torch):
    global _torch, _save
    _torch, _save = torch, torch.save
    patching.wrap(torch, "save", lambda real: not_saving(real, _write_holes))
    patching.wrap(torch.jit, "save", not_saving)
    unwritten_files.install()


def patch_writer(name, module):
    if name == "safetensors.torch":
        patching.wrap(module, "save_file", lambda real: not_saving(real, lambda path, what: _write_safetensors(path, what, module._TYPES)))
    elif name.startswith("torch.distributed.checkpoint"):
        patching.wrap(module, "save", _not_saving_distributed)
        patching.wrap(module, "save_state_dict", _not_saving_distributed)
        patching.wrap(module, "async_save", lambda real: _not_saving_distributed(real, returns_future=True))
    elif name == "transformers.modeling_utils":
        patching.wrap(module.PreTrainedModel, "save_pretrained", not_saving)
    elif name == "transformers.trainer":
        # It writes many files, and removes older checkpoints.
        patching.wrap(module.Trainer, "_save_checkpoint", _not_saving_trainer)
        patching.wrap(module.Trainer, "save_model", _not_saving_trainer)
    else:  # Lightning writes through a buffer
        patching.wrap(module, "_atomic_save", lambda real: not_saving(real, _write_holes))


def _must_not_save():
    """Before anything was on the card, all values of the script are real."""
    if process.state == process.CLOCKED:
        return True
    return process.job_is_captured() and (from_the_start or bool(process.recorder.devices_allocated_on()))


def _skip(path, *saved):
    """`saved`: modules, optimizers, tensors and containers of these."""
    whole_run.note_save(saved)
    if path not in _unwritten:
        _unwritten.append(path)
        recorder = process.recorder
        recorder.warnings = {key: value for key, value in recorder.warnings.items() if key[0] != "checkpoint_not_written"}
        recorder.warn("checkpoint_not_written", f"not written, since {why_unwritten}: {_shown()}")


def _shown():
    return ", ".join(_unwritten[:5]) + (f" and {len(_unwritten) - 5} more" if len(_unwritten) > 5 else "")


def explain(error):
    """A hint for an exception that a missing checkpoint may have caused, else ""."""
    return (
        f" (the script had saved {_shown()}, which was not written, since {why_unwritten})"
        if _unwritten and isinstance(error, OSError)
        else ""
    )


def _write_holes(path, what):
    with _torch.serialization.skip_data():
        _save(what, path)


def _write_safetensors(path, tensors, types):
    names = {dtype: name for name, dtype in types.items()}
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def not_saving(real, write=None):
    """Saving to a path does nothing once anything was on the card: it would replace a real checkpoint by zeros.

    `write(path, what)` makes a file that stands for a new one until the script ends.
    """

    def save(*args, **kwargs):
        if _must_not_save():
            candidates = (*args[1:2], *(kwargs.get(name) for name in ("f", "filename", "filepath", "save_directory")))
            path = next((value for value in candidates if isinstance(value, (str, os.PathLike))), None)
            if path is not None:
                _skip(os.fspath(path), *args[:1], *kwargs.values())
                if write and (process.state != process.CLOCKED or whole_run.wanted()):  # others with a clock may be killed at any time
                    what = args[0] if args else next(kwargs[name] for name in ("obj", "tensors", "checkpoint") if name in kwargs)
                    unwritten_files.stand_for(os.fspath(path), lambda path: write(path, what))
                return None
        initialisation.draw()
        made_files.note(args[1] if len(args) > 1 else None)
        return real(*args, **kwargs)

    return save


def _not_saving_trainer(real):
    def save(self, *args, **kwargs):
        if not _must_not_save():
            initialisation.draw()
            return real(self, *args, **kwargs)
        path = next((value for value in (*args[:1], kwargs.get("output_dir")) if isinstance(value, str)), None)
        _skip(path or f"checkpoints in {self.args.output_dir}", self.model, getattr(self, "optimizer", None))
        return None

    return save


def _not_saving_distributed(real, returns_future=False):
    def save(*args, **kwargs):
        if not _must_not_save():
            initialisation.draw()
            return real(*args, **kwargs)
        path = kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None) or "a distributed checkpoint"
        _skip(str(path), *args, *kwargs.values())
        if not returns_future:
            return None
        from concurrent.futures import Future

        done = Future()
        done.set_result(None)
        return done

    return save

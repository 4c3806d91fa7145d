"""Lightning: the batch size is found on the virtual GPU before the fit starts."""

from __future__ import annotations

import sys

from .batch_size import Search, asked_size, largest, say

if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback
    from pytorch_lightning.utilities.parsing import lightning_hasattr, lightning_setattr
else:
    from lightning.pytorch import Callback
    from lightning.pytorch.utilities.parsing import lightning_hasattr, lightning_setattr


class BatchSizeFinder(Callback):
    """lightning.pytorch.callbacks.BatchSizeFinder that knows in advance: the largest batch size for `trainer.fit` that fits `gpu`.

    Each size is tried by running this script's command on the virtual GPU. gpu: a name of `gpucast gpus`; else $GPUCAST_GPU, else this
    machine's own card. Sizes go to max_val, or to the length of the training data; above 64 in steps of 1.6 to 3.1 %."""

    def __init__(self, gpu: str | None = None, init_val: int = 2, batch_arg_name: str = "batch_size", max_val: int = 8192):
        self.optimal_batch_size: int | None = None
        self._gpu, self._init_val, self._batch_arg_name, self._max_val = gpu, init_val, batch_arg_name, max_val

    def on_fit_start(self, trainer, pl_module) -> None:
        if not lightning_hasattr(pl_module, self._batch_arg_name):
            raise AttributeError(f"neither the model nor the datamodule nor their hparams have {self._batch_arg_name}")
        name = type(self).__module__ + "." + type(self).__qualname__
        size = asked_size(name)
        if size is None and not trainer.fast_dev_run:
            size = self._find(name, trainer, pl_module)
        if size is not None:
            self.optimal_batch_size = size
            lightning_setattr(pl_module, self._batch_arg_name, size)

    def _find(self, name, trainer, pl_module) -> int | None:
        sizes = _round_sizes(min(self._max_val, _data_length(trainer, pl_module) or self._max_val))
        size = None
        with Search(name, self._gpu, has_margin=True) as needs:
            first = max(sum(size <= self._init_val for size in sizes) - 1, 0)
            size = largest(sizes, first, needs.bytes_of, needs.capacity_bytes)
            if size is None:
                raise RuntimeError(f"a batch of 1 does not fit {needs.gpu}")
            say(f"batch size {size} is the largest to {sizes[-1]} that fits {needs.gpu}")
        return size


def _round_sizes(end: int) -> list[int]:
    """Up to `end`: 1 to 64, every second to 128, every fourth to 256, ..."""
    sizes, step = list(range(1, min(end, 64) + 1)), 2
    while sizes[-1] + step <= end:
        sizes += range(sizes[-1] + step, min(end, 64 * step) + 1, step)
        step *= 2
    return sizes


def _data_length(trainer, pl_module) -> int | None:
    loader = (getattr(trainer, "datamodule", None) or pl_module).train_dataloader()
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        return None

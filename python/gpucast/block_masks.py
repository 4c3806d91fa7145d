"""FlexAttention's kernels read from the card which blocks a mask keeps. The same blocks are found here on the host, and the virtual GPU's core gets
their numbers: it counts what the kernels do."""

import contextlib
import ctypes
import functools
import sys
import types

from . import patching, process, shadow_values

_WHOLE = 1 << 22  # the most elements of a mask that is evaluated whole
_SAMPLES = (9, 5, 3, 2)  # positions along each side of a block otherwise, its first and last among them
_MOST_SAMPLED = 1 << 25
_PARTS = ("kv_num_blocks", "kv_indices", "q_num_blocks", "q_indices")

_torch = None


class _Unknown(Exception):
    pass


def patch(module, core):
    """`module`: torch.nn.attention.flex_attention, right after it was imported."""
    global _torch
    _torch = sys.modules["torch"]  # may still be in the middle of its own import
    patching.wrap(module, "_create_sparse_block_from_block_mask", lambda real: _noting_blocks(real, module, core))
    patching.wrap(module, "_create_empty_block_mask", lambda real: _noting_empty(real, core))


def _noting_blocks(real, module, core):
    def _create_sparse_block_from_block_mask(block_mask, mask_mod, *args, **kwargs):
        made = real(block_mask, mask_mod, *args, **kwargs)
        if _is_on_card(made):

            def on_host():
                return real(_blocks(module, core, block_mask, mask_mod, made), mask_mod, *args, **kwargs)

            _note(core, made, (mask_mod and patching.safely(on_host)) or None)
        return made

    return _create_sparse_block_from_block_mask


def _noting_empty(real, core):
    """A mask that keeps everything is one block."""

    def _create_empty_block_mask(query, key):
        made = real(query, key)
        if _is_on_card(made):
            _note(core, made, patching.safely(lambda: real(query.new_empty(0, device="cpu"), key)) or None)
        return made

    return _create_empty_block_mask


def _is_on_card(made):
    return not process.is_compiling() and type(made.kv_indices) is _torch.Tensor and made.kv_indices.is_cuda


def _note(core, made, on_host):
    """`on_host` None: the blocks are not known, nor is what the core knew of this memory before."""
    for name in (*_PARTS, *("full_" + part for part in _PARTS)):
        tensor, values = getattr(made, name), on_host and getattr(on_host, name)
        if tensor is None or not tensor.is_contiguous():
            continue
        values = values.to(tensor.dtype).contiguous() if values is not None and values.shape == tensor.shape else None
        size = tensor.numel() * tensor.element_size()
        core.gpucast_vgpu_note_values(tensor.data_ptr(), None if values is None else values.data_ptr(), size)


# ---- the mask on the host --------------------------------------------------------------------------------------------------------


def _blocks(module, core, dense, mask_mod, made):
    """`dense`: PyTorch's two tensors on the card; the second may be None. The same on the host, from `mask_mod` itself."""
    (q_length, kv_length), (q_block, kv_block) = made.seq_lengths, made.BLOCK_SIZE
    batch, heads, q_blocks, kv_blocks = dense[0].shape
    evaluate = module._vmap_for_bhqkv(_on_host(mask_mod, core), prefix=())
    whole = batch * heads * q_length * kv_length <= _WHOLE
    for samples in _SAMPLES:
        q_places, q_valid = _positions(q_length, q_blocks, q_block, None if whole else samples)
        kv_places, kv_valid = _positions(kv_length, kv_blocks, kv_block, None if whole else samples)
        if whole or batch * heads * q_places.numel() * kv_places.numel() <= _MOST_SAMPLED:
            break
    else:
        raise _Unknown
    with _torch.no_grad(), getattr(module, "TransformGetItemToIndex", contextlib.nullcontext)():  # an index may be a tensor of one element
        kept = evaluate(_torch.arange(batch, device="cpu"), _torch.arange(heads, device="cpu"), q_places, kv_places)
        kept = kept.broadcast_to(batch, heads, q_places.numel(), kv_places.numel()) & q_valid[:, None] & kv_valid
        kept = kept.view(batch, heads, q_blocks, -1, kv_blocks, kv_places.numel() // kv_blocks)
        some, every = kept.any(5).any(3), kept.all(5).all(3)
    if dense[1] is None:
        return some.to(dense[0].dtype), None
    return (some & ~every).to(dense[0].dtype), every.to(dense[1].dtype)


def _positions(length, blocks, block, samples):
    """Positions in each block, the same number in each, and which of them lie within the sequence. `samples` None: all."""
    inside = _torch.arange(block, device="cpu") if samples is None else _torch.linspace(0, block - 1, samples, device="cpu").long().unique()
    places = (_torch.arange(blocks, device="cpu")[:, None] * block + inside).flatten()
    return places.clamp(max=length - 1), places < length


def _on_host(value, core):
    """A mask function whose tensors are on the host: those that it closes over, and the global ones that it names."""
    if isinstance(value, _torch.Tensor):
        return _tensor_on_host(value, core) if value.is_cuda else value
    if isinstance(value, (tuple, list)):
        return type(value)(_on_host(one, core) for one in value)
    if isinstance(value, functools.partial):
        return functools.partial(
            _on_host(value.func, core), *_on_host(value.args, core), **{k: _on_host(v, core) for k, v in value.keywords.items()}
        )
    if not isinstance(value, types.FunctionType):
        return value
    found = {name: value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__}
    changed = {name: _on_host(one, core) for name, one in found.items() if isinstance(one, _torch.Tensor) or _is_of_same_file(one, value)}
    closure = value.__closure__ and tuple(types.CellType(_on_host(cell.cell_contents, core)) for cell in value.__closure__)
    same = types.FunctionType(value.__code__, value.__globals__ | changed, value.__name__, _on_host(value.__defaults__, core), closure)
    same.__kwdefaults__ = value.__kwdefaults__
    return same


def _is_of_same_file(one, function):
    return isinstance(one, types.FunctionType) and one is not function and one.__globals__ is function.__globals__


def _tensor_on_host(tensor, core):
    known = shadow_values.values_of(tensor)
    if known is not None:
        return known
    if not tensor.is_contiguous():
        raise _Unknown
    out = _torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    size = out.numel() * out.element_size()
    if core.gpucast_vgpu_known_values(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_uint64(size)) != size:
        raise _Unknown
    return out

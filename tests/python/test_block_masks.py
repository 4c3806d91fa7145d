"""FlexAttention: what the virtual GPU's core knows of a mask's blocks, and those that PyTorch's create_block_mask finds on the CPU."""

from conftest import train_script

SCRIPT = """
import ctypes, functools, torch
from torch.nn.attention import flex_attention
from _gpucast import block_masks, libraries

core = libraries.call_core()
document, of_file = torch.arange(1000) // 300, (torch.arange(1000) // 170).int()
on_card, of_file = document.cuda(), of_file.cuda()

def causal(batch, head, query, key):
    return query >= key

def window(width, batch, head, query, key):
    return (query - key).abs() <= width + 10 * head

def file(batch, head, query, key):
    return of_file[query] == of_file[key]

def of(document):
    return lambda batch, head, query, key: document[query] == document[key]

def known(tensor):
    out = torch.empty(tensor.shape, dtype=tensor.dtype)
    size = out.numel() * out.element_size()
    read = core.gpucast_vgpu_known_values(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_uint64(size))
    return out if read == size else None

both = flex_attention.and_masks
masks = {
    "causal": (causal, causal),
    "window": (functools.partial(window, 70),) * 2,
    "document": (of(on_card), of(document)),
    "both": (both(causal, of(on_card)), both(causal, of(document))),
    "file": (file, lambda batch, head, query, key: query // 170 == key // 170),
}
parts = [full + part for full in ("", "full_") for part in block_masks._PARTS]
for whole in (1 << 22, 0):
    block_masks._WHOLE = whole
    for name, (mask, on_host) in masks.items():
        made = flex_attention.create_block_mask(mask, 1, 2, 1000, 1000, device="cuda")
        expected = flex_attention.create_block_mask(on_host, 1, 2, 1000, 1000, device="cpu")
        same = [known(getattr(made, part)) is not None and torch.equal(known(getattr(made, part)), getattr(expected, part)) for part in parts]
        print("blocks", name, "whole" if whole else "sampled", all(same))
unknown = torch.zeros(1000, dtype=torch.int64, device="cuda").cumsum(0)
made = flex_attention.create_block_mask(of(unknown), 1, 2, 1000, 1000, device="cuda")
print("blocks", "unknown", known(made.kv_indices) is None)
"""


def test_the_blocks_are_those_of_pytorch(gpucast):
    """Windows, documents whose borders lie within blocks, a tensor of the script's file; a mask over unknown values says nothing."""
    run = gpucast(SCRIPT + train_script(steps=3), "--gpu", "a100-80", fresh=True)
    assert run.code == 0, run.err
    said = [line.split()[1:] for line in (run.out + run.err).splitlines() if line.startswith("blocks ")]
    assert len(said) == 11 and [line for line in said if line[-1] != "True"] == [], said

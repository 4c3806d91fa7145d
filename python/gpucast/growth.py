"""Memory that grows from step to step: whether a run must go on to be certain, and which blocks of past steps are still there."""

import gc
import sys
import time
from bisect import bisect_left

from . import holders, patching, process

_LEAST = 6  # steps: after 6, the survivors of steps 2, 3 and 4 show whether each step leaves the same
_LATER = (9, 13, 20, 30, 45, 60)  # where a run that goes on looks again: a buffer may be filling
_LONGEST_S = 60  # the run goes on for so long at most

_ends = []  # after each step: the bytes that tensors asked for, the number of the next autograd node
_began = None  # when the first growth was seen
_certain = False  # nothing more to learn
_next = _LEAST
_oldest = sys.maxsize  # the first step that left something


# ---- during the run ------------------------------------------------------------------------------------------------------------------


def note_step():
    """Called after each step."""
    device = process.torch.cuda.current_device()
    number = getattr(process.torch.autograd, "_get_sequence_nr", None)
    # Not the allocated bytes: a block may be up to 1 MiB larger than what its tensor asked for, and another one the next time.
    asked = process.torch._C._cuda_memoryStats(device)["requested_bytes"]["all"]["current"]
    _ends.append((asked, number() if number else 0))


def forget_steps():
    """What was noted was no step."""
    _ends.clear()


def certain():
    """Whether growth was seen that more steps would only repeat."""
    return _certain


def wants_more():
    """Whether more steps would show if memory grows: called when a run would end, and after each further step."""
    global _certain
    if _certain or "growth" in patching.disabled:
        return False
    try:
        return _wants_more()
    except Exception as error:
        patching.fail("growth", error)
        return False


def _wants_more():
    global _certain, _began, _next, _oldest
    allocated = [end[0] for end in _ends]
    # What one step adds goes away with the next where only the lengths of batches differ.
    grows = len(allocated) >= 2 and (min(allocated[2:][-3:] or [0]) > allocated[1] or allocated[-1] > allocated[-2])
    if not grows:
        return False
    _began = _began or time.monotonic()
    if time.monotonic() - _began > _LONGEST_S:
        return False
    if len(allocated) < _next:
        return True
    kept = _kept(_alive_by_step())
    counts = [sum(kept.get(step, {}).values()) for step in range(2, len(allocated) - 1)]
    recent = counts[-4:]
    later = next((number for number in _LATER if number > len(allocated)), None)
    left = [step for step, size in enumerate(counts, 2) if size]
    if left and not any(recent):
        # The results of a validation: the next one shows whether they are kept each time.
        apart = max((after - before for before, after in zip(left, left[1:])), default=left[0])
        _next = len(allocated) + 1
        return len(allocated) <= left[-1] + apart + 2
    if not any(recent):
        # A tensor that is replaced by a larger one each step leaves nothing of its past.
        rises = all(after > before for before, after in zip(allocated[1:], allocated[2:]))
        if not rises or later is None:
            return False
        if len(allocated) > _LATER[0] and not any(holder["removes"] for holder in _holders_of(_newest(_alive_by_step()))):
            return False
        _next = later
        return True
    found = _holders_of(kept)
    if any(holder["bound"] for holder in found):  # it fills up to a known size
        return False
    _oldest = min(left[0], _oldest)
    if left[0] > _oldest and any(holder["removes"] for holder in found):  # the oldest are gone: it is full
        return False
    open_ended = found and not any(holder["removes"] or holder["container"] == "dict" for holder in found)
    # Two equal amounts, as far apart as the first from the start; every step, or every few steps.
    regular = len(left) >= 2 and counts[left[-1] - 2] == counts[left[-2] - 2] and left[-1] - left[-2] <= left[0]
    if open_ended and regular and (len(set(recent)) == 1 or left[-1] - left[-2] > 1):
        _certain = True
        return False
    if later is None:
        _certain = True
        return False
    _next = later
    return True


# ---- survivors ----------------------------------------------------------------------------------------------------------------------


def _alive_by_step(snapshot=None, at_last_step=False):
    """Of each step: address -> bytes of the blocks that it made and that are alive now, or were at the last step's last allocation."""
    device = process.torch.cuda.current_device()
    place = process.recorder.devices.index(device)
    if snapshot is None:
        snapshot = process.torch.cuda.memory._snapshot()
    ends = [mark[1][place][0] if place < len(mark[1]) else 0 for mark in sorted(process.recorder.marks) if mark[3] == "step"]
    alive, allocs = {}, 0
    for event in snapshot["device_traces"][device]:
        if at_last_step and ends and allocs == ends[-1]:
            break
        if event["action"] == "alloc":
            allocs += 1
            alive[event["addr"]] = (bisect_left(ends, allocs) + 1, event["size"])
        elif event["action"] == "free_requested":
            alive.pop(event["addr"], None)
    blocks = {}
    for address, (step, size) in alive.items():
        blocks.setdefault(step, {})[address] = size
    return blocks


def _kept(blocks):
    """The blocks of past steps, without the first: it sets up what PyTorch and the optimizer keep."""
    return {step: made for step, made in blocks.items() if 2 <= step <= len(_ends) - 2}


def _newest(blocks):
    """The blocks of the last step, and of what came after it."""
    return {step: made for step, made in blocks.items() if step >= len(_ends) - 1}


def record(snapshot, runs):
    """The holders of blocks that past steps made, as a record of the capture; None: no such blocks are left. `runs`: the script does."""
    if "growth" in patching.disabled or len(_ends) < 4:
        return None
    try:
        blocks = _alive_by_step(snapshot)
        kept = _kept(blocks)
        if not kept and _ends[-1][0] <= _ends[1][0]:
            return None
        # A tensor that a larger one replaces in each step is of the last step.
        found = _holders_of(kept)
        collected = _collected(_alive_by_step(snapshot, at_last_step=True)) if runs else []
        found += _holders_of(_newest(blocks))
        return {"record": "holders", "holders": found, "collected": collected} if found or collected else None
    except Exception as error:
        patching.fail("growth", error)
        return None


def _collected(blocks):
    """The addresses of blocks in cycles of references, which Python's garbage collector frees some day."""
    kept = _kept(blocks)
    if not kept:
        return []
    gc.collect()  # it may have run already, after the last step
    segments = process.torch.cuda.memory._snapshot()["segments"]
    used = {block["address"] for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"}
    past_bytes = sum(size for made in kept.values() for address, size in made.items() if address not in used)
    if past_bytes:
        process.recorder.warn(
            "waits_for_collection",
            f"{past_bytes / 2**20:.1f} MiB of past steps are in cycles of references. Only Python's garbage collector frees "
            "them, and it counts objects, not bytes: the peak of a longer run may be higher. Break the cycle, or call gc.collect()",
        )
    return [address for step, made in blocks.items() for address in made if step > 1 and address not in used]


def _holders_of(kept):
    last = len(_ends) - 2
    past_nodes = (_ends[0][1], _ends[last - 1][1]) if last >= 2 and _ends[0][1] else None
    return holders.find(kept, past_nodes)

"""Small snapshots of every shape the reader knows, as seeds for pickle_fuzz: python tests/fuzz/make_pickle_seeds.py"""

import gzip
import pickle
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus/pickle"
A = 0x7F0000000000
FRAME = {"name": "main", "filename": "train.py", "line": 7}


def event(action, addr, size, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000, "frames": [FRAME], **more}


def block(address, size, state, requested=0, **more):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": [FRAME], **more}


def segment(address, size, blocks, **more):
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large" if size > 2 << 20 else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": blocks,
        **more,
    }


SMALL = segment(A, 2 << 20, [block(A, 1024, "active_allocated", 1000), block(A + 1024, (2 << 20) - 1024, "inactive")])
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32,backend:native",
    "max_split_size": 32 << 20,
    "garbage_collection_threshold": 0.5,
    "expandable_segments": False,
    "roundup_power2_divisions": {"1": 0, "256": 8},
}
NOTES = [{"stage": "START", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": 1_700_000_000_000_000}]

WHOLE = {
    "segments": [SMALL],
    "device_traces": [[event("segment_alloc", A, 2 << 20), event("alloc", A, 1000)]],
    "allocator_settings": SETTINGS,
    "external_annotations": NOTES,
}
MIDDLE = {
    "segments": [SMALL],
    "device_traces": [[event("free_requested", A + 4096, 700), event("free_completed", A + 4096, 700), event("alloc", A, 1000)]],
}
EXPANDABLE = {
    "segments": [segment(A, 40 << 20, [block(A, 40 << 20, "active_pending_free", 39 << 20)], is_expandable=True)],
    "device_traces": [
        [event("segment_map", A, 20 << 20), event("segment_map", A + (20 << 20), 20 << 20), event("alloc", A, 39 << 20)]
        + [event("free_requested", A, 39 << 20), {"action": "oom", "size": 1 << 30, "device_free": 5, "stream": 0}]
        + [event("segment_unmap", A + (80 << 20), 20 << 20), event("snapshot", 0, 0)]
    ],
}
DEVICES = {"segments": [SMALL, {**SMALL, "device": 1}], "device_traces": [WHOLE["device_traces"][0], [event("alloc", A, 1000)], []]}
OLD = {
    "segments": [
        {
            "device": 0,
            "address": A,
            "total_size": 2048,
            "stream": 0,
            "segment_type": "small",
            "blocks": [{"size": 2048, "state": "active_allocated", "history": [{"addr": A, "real_size": 2000, "frames": [FRAME]}]}],
        }
    ],
    "device_traces": [[{"action": "segment_free", "addr": A + 4096, "size": 2048, "stream": 0}]],
}
SHAPES = {"whole": WHOLE, "middle": MIDDLE, "expandable": EXPANDABLE, "devices": DEVICES, "old": OLD, "segments_only": [SMALL]}


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, shape in SHAPES.items():
        for protocol in (2, 4):
            (CORPUS / f"{name}.{protocol}").write_bytes(pickle.dumps(shape, protocol))
    (CORPUS / "whole.gz").write_bytes(gzip.compress(pickle.dumps(WHOLE, 5), mtime=0))
    (CORPUS / "global").write_bytes(b"\x80\x02cos\nsystem\n(U\x04echotR.")
    (CORPUS / "stack_global").write_bytes(b"\x80\x04\x8c\x02os\x8c\x06system\x93.")
    (CORPUS / "itself").write_bytes(b"\x80\x02]q\x00(h\x00h\x00e.")


if __name__ == "__main__":
    main()

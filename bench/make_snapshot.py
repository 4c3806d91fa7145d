"""A large memory snapshot, like torch.cuda.memory._dump_snapshot's: the input for measuring the reader's time and memory.

python bench/make_snapshot.py --events 1000000 --frames 40 big.pickle
/usr/bin/time -v build/release/bin/gpucast analyze big.pickle       (peak memory stays below 3 times the file's size)

The history has steps that allocate and free the same blocks, in one segment of 20 MiB per block. Every event has its own list of
frames, as in PyTorch.
"""

import argparse
import pickle
import random

SEGMENT = 20 << 20
BASE = 0x7F0000000000


def frame_lists(depth, stacks, seed):
    """Lists of frames that share their dicts; `stacks` different ones."""
    choose = random.Random(seed)
    frames = [{"name": f"function_{i}", "filename": f"/home/user/project/module_{i % 97}.py", "line": i % 1000 + 1} for i in range(2000)]
    return [[choose.choice(frames) for _ in range(depth)] for _ in range(stacks)]


def snapshot(events, depth, stacks, blocks, metadata, seed=0):
    choose = random.Random(seed)
    lists = frame_lists(depth, stacks, seed)
    trace, live, time_us = [], {}, 1_700_000_000_000_000

    def add(action, block, size):
        nonlocal time_us
        time_us += 3
        event = {"action": action, "addr": BASE + block * SEGMENT, "size": size, "stream": 0, "time_us": time_us}
        if metadata:
            event.update({"compile_context": "N/A", "user_metadata": "".join(["step", str(time_us)]) if metadata == "unique" else ""})
        event["frames"] = list(choose.choice(lists))
        trace.append(event)

    for block in range(blocks):
        add("segment_alloc", block, SEGMENT)
    while len(trace) < events:
        block = choose.randrange(blocks)
        if block in live:
            size = live.pop(block)
            add("free_requested", block, size)
            add("free_completed", block, size)
        else:
            live[block] = choose.randrange(19 << 20, SEGMENT)
            add("alloc", block, live[block])
    segments = []
    for block in range(blocks):
        in_use = block in live
        segments.append(
            {
                "device": 0,
                "address": BASE + block * SEGMENT,
                "total_size": SEGMENT,
                "allocated_size": SEGMENT if in_use else 0,
                "active_size": SEGMENT if in_use else 0,
                "requested_size": live.get(block, 0),
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [
                    {
                        "address": BASE + block * SEGMENT,
                        "size": SEGMENT,
                        "requested_size": live.get(block, 0),
                        "state": "active_allocated" if in_use else "inactive",
                        "frames": [],
                    }
                ],
            }
        )
    return {
        "segments": segments,
        "device_traces": [trace],
        "allocator_settings": {"expandable_segments": False},
        "external_annotations": [],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--frames", type=int, default=40, help="frames in a stack")
    parser.add_argument("--stacks", type=int, default=5000, help="different stacks")
    parser.add_argument("--blocks", type=int, default=500)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument(
        "--metadata", choices=["", "same", "unique"], default="", help="keys of newer releases: one text, or a text for each event"
    )
    options = parser.parse_args()
    data = snapshot(options.events, options.frames, options.stacks, options.blocks, options.metadata)
    with open(options.output, "wb") as file:
        pickle.dump(data, file, protocol=options.protocol)


if __name__ == "__main__":
    main()

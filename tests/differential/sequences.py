"""Random sequences of allocator operations, the same for the same seed and release. README.md explains the lines.

python tests/differential/sequences.py --torch 2.14.1 --seed 7 > seed7.events.txt
"""

import argparse
import random

KIB, MIB = 1 << 10, 1 << 20

# Sizes by class: all that the allocator distinguishes, and around its borders.
SIZE_CLASSES = {
    "tiny": lambda r: r.randint(1, 4 * KIB),
    "around_512": lambda r: 512 * r.randint(1, 8) + r.randint(-1, 1),
    "small": lambda r: r.randint(4 * KIB, MIB),
    "around_1_mib": lambda r: MIB + r.choice((-512, -1, 0, 1, 512, 4096)),
    "medium": lambda r: r.randint(MIB + 1, 10 * MIB),
    "around_10_mib": lambda r: 10 * MIB + r.choice((-512, -1, 0, 1, 512, MIB)),
    "around_20_mib": lambda r: 20 * MIB + r.choice((-2 * MIB, -MIB, -1, 0, 1, MIB)),
    "whole_2_mib": lambda r: 2 * MIB * r.randint(1, 40),
    "large": lambda r: r.randint(10 * MIB, 120 * MIB),
    "huge": lambda r: r.randint(120 * MIB, 600 * MIB),
    "power_of_2": lambda r: 1 << r.randint(9, 28),
}

# Settings of both releases, and of newer ones only. Each: a function that makes the text.
SETTINGS = {
    "max_split_size_mb": lambda r: f"max_split_size_mb:{r.choice((21, 32, 64, 100, 128, 200, 512))}",
    "roundup_power2_divisions": lambda r: f"roundup_power2_divisions:{r.choice((1, 2, 4, 8, 16, 64))}",
    "roundup_power2_divisions_list": lambda r: "roundup_power2_divisions:"
    + r.choice(("[256:1,512:2,1024:4,>:8]", "[1:2,16:8,64:4,>:1]", "[2:16,>:2]", "[32:256,64:128,256:64,>:32]", "[128:4]")),
    "garbage_collection_threshold": lambda r: f"garbage_collection_threshold:{r.choice((0.1, 0.3, 0.5, 0.6, 0.8, 0.95))}",
    "expandable_segments": lambda r: "expandable_segments:True",
    "max_non_split_rounding_mb": lambda r: f"max_non_split_rounding_mb:{r.choice((21, 32, 64, 200))}",
}
NEWER_SETTINGS = {
    "large_segment_size_mb": lambda r: f"large_segment_size_mb:{r.choice((22, 32, 40, 64, 128))}",
    "per_process_memory_fraction": lambda r: f"per_process_memory_fraction:{r.choice((0.3, 0.5, 0.75, 0.9, 1.0))}",
    "throw_on_cudamalloc_oom": lambda r: "throw_on_cudamalloc_oom:True",
    "graph_capture_record_stream_reuse": lambda r: "graph_capture_record_stream_reuse:True",
}
WEIGHTS = {"expandable_segments": 4, "max_split_size_mb": 3, "garbage_collection_threshold": 2}


def release(version):
    return tuple(int(part) for part in version.split(".")[:2])


def random_settings(r, version):
    known = {**SETTINGS, **(NEWER_SETTINGS if release(version) >= (2, 10) else {})}
    if r.random() < 0.2:
        return ""
    wanted = r.choice((1, 1, 1, 2, 2, 3, 4))
    chosen = []
    while len(chosen) < wanted:
        name = r.choices(list(known), [WEIGHTS.get(name, 1) for name in known])[0]
        if not any(other.split(":")[0] == name.replace("_list", "") for other in chosen):
            chosen.append(known[name](r))
    # Rounding of blocks that are not split matters only together with max_split_size_mb, and must not be below it.
    if any(text.startswith("max_non_split") for text in chosen) and not any(text.startswith("max_split") for text in chosen):
        chosen.append(SETTINGS["max_split_size_mb"](r))
    # PyTorch wants both to be at least as large as a large segment, and looks at the text from left to right.
    chosen.sort(key=lambda text: not text.startswith("large_segment"))
    least = int(chosen[0].split(":")[1]) if chosen[0].startswith("large_segment") else 0
    for i, text in enumerate(chosen):
        name, _, value = text.partition(":")
        if name in ("max_split_size_mb", "max_non_split_rounding_mb"):
            chosen[i] = f"{name}:{max(least, int(value))}"
    return ",".join(chosen)


class Generator:
    def __init__(self, seed, version, settings=None):
        self.r = r = random.Random(f"{seed} {settings}")
        self.version = version
        self.alloc_conf = random_settings(r, version) if settings is None else settings
        self.streams = list(range(r.choice((1, 1, 2, 3, 4))))
        self.named = self.named_streams() if len(self.streams) > 1 and r.random() < 0.3 else []
        self.count = r.choice((60, 150, 300, 300, 600, 600, 1500))
        self.lines = []
        self.live, self.live_bytes, self.next_id = {}, 0, 0
        self.held, self.pools, self.begun, self.next_pool = set(), {}, [], 1
        self.recorded_while_begun, self.from_pools = set(), set()
        weights = [r.random() ** 3 for _ in SIZE_CLASSES]
        self.class_weights = weights
        self.repeated = [self.fresh_size() for _ in range(r.randint(3, 25))]
        self.repeat = r.choice((0, 0.3, 0.7, 0.95))
        self.order = r.choice(("random", "lifo", "fifo", "waves"))
        self.target_bytes = r.choice((100, 500, 1000, 2000, 4000)) * MIB
        # Around the live memory: the smaller, the more reclaiming and running out of memory.
        self.capacity_mib = 80000 if r.random() < 0.25 else max(24, int(self.target_bytes / MIB * r.uniform(0.4, 1.6))) // 2 * 2
        self.record_stream = r.choice((0, 0.05, 0.3)) if len(self.streams) > 1 else 0
        self.holds = r.choice((0, 0.02, 0.1)) if self.record_stream else 0
        self.private = r.choice((0, 0, 0.02))
        self.empty = r.choice((0, 0.005, 0.03))
        self.growing = True
        # Ranges for expandable segments lie among the others there, which `gpucast replay` places in its own way.
        self.linux = r.random() < 0.3 and "expandable" not in self.alloc_conf

    def named_streams(self):
        """Any streams of PyTorch's pools instead of the first ones, high priorities among them. Their handles ascend by place, then kind."""
        self.streams = list(range(self.r.choice((2, 4, 8, 16))))
        chosen = self.r.sample([(place, kind) for place in range(32) for kind in (1, 2)], len(self.streams) - 1)
        ids = [place << 5 | kind << 1 | 1 for place, kind in chosen]
        handles = [1 + place * 4 + kind for place, kind in chosen]
        return [" ".join(["#", key, "0", *map(str, numbers)]) for key, numbers in (("stream_ids", ids), ("stream_handles", handles))]

    def fresh_size(self):
        name = self.r.choices(list(SIZE_CLASSES), self.class_weights)[0]
        return SIZE_CLASSES[name](self.r)

    def size(self):
        return self.r.choice(self.repeated) if self.r.random() < self.repeat else self.fresh_size()

    def add(self, *words):
        self.lines.append(" ".join(str(word) for word in words))

    def allocate(self):
        size = self.size()
        self.add("a", self.next_id, size, self.r.choice(self.streams))
        self.live[self.next_id] = size
        if self.begun:
            self.from_pools.add(self.next_id)
        self.live_bytes += size
        self.next_id += 1

    def free(self):
        ids = list(self.live)
        if self.order == "lifo":
            chosen = ids[-1 - min(len(ids) - 1, int(self.r.expovariate(1)))]
        elif self.order == "fifo":
            chosen = ids[min(len(ids) - 1, int(self.r.expovariate(1)))]
        else:
            chosen = self.r.choice(ids)
        self.free_block(chosen)

    def free_block(self, chosen):
        self.add("f", chosen)
        self.live_bytes -= self.live.pop(chosen)

    def may_release(self, pool):
        """PyTorch miscounts the mappings of a pool with expandable segments: it may delete the pool under blocks in use, and crash."""
        last = self.pools[pool] == 1
        return not last or "expandable" not in self.alloc_conf or not (self.record_stream or self.from_pools & self.live.keys())

    def private_pool(self):
        r = self.r
        if self.begun and r.random() < 0.6:
            pool = r.choice(self.begun)
            self.begun.remove(pool)
            if not self.begun:
                # PyTorch 2.6 remembers such a block for ever when it is freed later, by its place on the heap.
                for one in sorted(self.recorded_while_begun & self.live.keys()):
                    self.free_block(one)
                self.recorded_while_begun.clear()
            self.add("pe", pool)
        elif r.random() < 0.3 and any(pool not in self.begun and self.may_release(pool) for pool in self.pools):
            pool = r.choice([pool for pool in self.pools if pool not in self.begun and self.may_release(pool)])
            self.add("pr", pool)
            self.pools[pool] -= 1
            if self.pools[pool] == 0:
                del self.pools[pool]  # PyTorch does not use it again
        elif len(self.begun) < 2:
            again = [pool for pool in self.pools if pool not in self.begun]
            pool = r.choice(again) if again and r.random() < 0.5 else self.next_pool
            self.next_pool += pool == self.next_pool
            self.pools[pool] = self.pools.get(pool, 0) + 1
            self.begun.append(pool)
            # PyTorch refuses the default stream here.
            own_streams = self.streams[1:] if r.random() < 0.5 else []
            self.add("pb", pool, *([r.choice(own_streams)] if own_streams else []))

    def step(self):
        r = self.r
        if self.record_stream and self.live and r.random() < self.record_stream:
            chosen = r.choice(list(self.live))
            self.add("r", chosen, r.choice(self.streams))
            if self.begun:
                self.recorded_while_begun.add(chosen)
        if r.random() < self.holds:
            stream = r.choice(self.streams)
            self.add("w" if stream in self.held else "h", stream)
            self.held ^= {stream}
        if r.random() < self.private:
            self.private_pool()
        if r.random() < self.empty and (not self.begun or (release(self.version) >= (2, 10) and r.random() < 0.2)):
            self.add("e")
        if r.random() < 0.005:
            waited_for = self.streams if r.random() < 0.5 else [r.choice(self.streams)]
            self.add("s", *(waited_for if len(waited_for) == 1 else []))
            self.held -= set(waited_for)
        if r.random() < 0.002:
            self.add("k")
        if self.order == "waves":
            if not self.live or self.live_bytes < self.target_bytes * 0.1:
                self.growing = True
            elif self.live_bytes > self.target_bytes:
                self.growing = False
            grow = r.random() < (0.85 if self.growing else 0.15)
        else:
            grow = r.random() < (0.8 if self.live_bytes < self.target_bytes * 0.7 else 0.45)
        if grow and self.live_bytes < 1.2 * self.target_bytes or not self.live:
            self.allocate()
        else:
            self.free()

    def run(self):
        fraction_at = self.r.choice((None, None, 0, self.r.randint(0, self.count)))
        if "garbage" in self.alloc_conf and self.r.random() < 0.8:
            fraction_at = fraction_at or 0
        while len(self.lines) < self.count:
            if fraction_at is not None and len(self.lines) >= fraction_at:
                self.add("p", self.r.choice((0.2, 0.5, 0.7, 0.9, 1.0)))
                fraction_at = None if self.r.random() < 0.8 else len(self.lines) + self.r.randint(1, self.count)
            self.step()
        header = [f"# torch {self.version}", f"# alloc_conf {self.alloc_conf}".rstrip(), f"# capacity_mib {self.capacity_mib}"]
        return header + self.named + ["# addresses linux"] * self.linux + self.lines


def make(seed, version, settings=None):
    """The lines of a sequence. With `settings` given, those are used instead of random ones."""
    return Generator(seed, version, settings).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--torch", required=True, help="the PyTorch release, for the settings that it knows")
    parser.add_argument("--alloc-conf", help="instead of random settings")
    arguments = parser.parse_args()
    print("\n".join(make(arguments.seed, arguments.torch, arguments.alloc_conf)))


if __name__ == "__main__":
    main()

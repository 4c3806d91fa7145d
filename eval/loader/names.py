"""The pipelines, and how a step of each depends on its data: "none": pinned copies, no waits; "copy": copies that are not
pinned; "item": loss.item()."""

SYNC = {
    "jpeg": "none",
    "photos": "item",
    "png": "copy",
    "tokenise": "none",
    "augment": "none",
    "mixup": "item",
    "shards": "none",
    "sleep": "none",
    "sleep-varied": "item",
    "memory-map": "none",
    "spectrogram": "copy",
    "slow-disk": "none",
}

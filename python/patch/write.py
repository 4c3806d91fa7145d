"""Writes a configuration that `gpucast advise` ran as a patch of the user's script. Runs in the command's own Python; changes no file but its
output.

    write.py JOB    a JSON file: {"places", "what_ifs", "folder", "output", "header"}

Prints one JSON object: {"placed", "by_hand": [{"what_if", "why"}], "files": [{"name", "added", "removed"}]}, or {"problem", "where", "to_do"}.
Without a line that can be placed, nothing is written.
"""

import json
import os
import sys

import loop_lines
import loss_lines
import model_lines
import optimizer_lines
from patch_job import Job, Problem
from source import ByHand

_CHANGES = {
    "checkpoint": model_lines.checkpoint,
    "compile": model_lines.compiled,
    "bf16": model_lines.bf16,
    "bf16-weights": model_lines.bf16_weights,
    "attention": model_lines.attention,
    "fused": optimizer_lines.switches,
    "foreach": optimizer_lines.switches,
    "no-foreach": optimizer_lines.switches,
    "set-to-none": optimizer_lines.set_to_none,
    "8bit-optimizer": optimizer_lines.other_optimizer,
    "factored-optimizer": optimizer_lines.other_optimizer,
    "optimizer-in-backward": optimizer_lines.in_backward,
    "offload-optimizer": optimizer_lines.offload,
    "chunked-loss": loss_lines.chunked_loss,
    "half-batch": loop_lines.half_batch,
    "micro-batch": loop_lines.micro_batch,
}


def place_changes(job):
    placed, by_hand = [], []
    for what_if in job.what_ifs:
        kind, _, argument = what_if.partition(":")
        before = [(source, source.state()) for source in job.sources()]
        try:
            if kind not in _CHANGES:
                raise ByHand("it changes more than lines that can be found")
            _CHANGES[kind](job, what_if, argument)
            placed.append(what_if)
            for source in job.sources():
                source.check()
        except Problem:
            raise
        except Exception as error:
            job.forget_after(before)
            why = str(error) if isinstance(error, ByHand) else f"gpucast's own code failed: {type(error).__name__}: {error}"
            by_hand.append({"what_if": what_if, "why": why})
    return placed, by_hand


def write(described):
    if not described["places"]["is_complete"]:
        raise Problem("the script trains in too many places", "", "change it by hand, as the report says")
    job = Job(described)
    placed, by_hand = place_changes(job)
    files, patch = [], b""
    for source in job.sources():
        name = job.name_of(source.path)
        of_file = source.patch(name)
        if of_file:
            added, removed = source.changed_lines()
            files.append({"name": name, "added": added, "removed": removed})
            patch += of_file
    if patch:
        header = "".join(f"{line}\n" for line in described["header"])
        header += "".join(f"by hand: {entry['what_if']}: {entry['why']}\n" for entry in by_hand)
        try:
            with open(described["output"], "wb") as file:
                file.write(header.encode("utf-8", "backslashreplace") + patch)
        except OSError as error:
            raise Problem(f"the patch cannot be written: {os.strerror(error.errno)}", described["output"], "name another file") from None
    return {"placed": placed, "by_hand": by_hand, "files": files}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        described = json.load(file)
    try:
        answer = write(described)
    except Problem as problem:
        answer = {"problem": str(problem), "where": problem.where, "to_do": problem.to_do}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

"""The allocator's history merged with the recorder's marks, as the lines of a capture's process and history sections."""

import json
import os

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep

_OF_ONE_DEVICE = ("capture_begin", "pool_")  # marks, by how they begin

# The names of the history's lines are PyTorch's. A completed free belongs to the free before it.
_AFTER_ITS_CAUSE = "free_completed"


class _Stacks:
    """Python stacks by number. PyTorch shares one frame object between all stacks that hold it, so identity is equality."""

    def __init__(self, write):
        self._write = write
        self._by_identity = {}  # of the frames
        self._by_text = {}  # the same without our own frames
        self._texts = {}
        self._alive = []  # keeps identities unique

    def number(self, frames):
        if not frames:
            return -1
        key = tuple(map(id, frames))
        number = self._by_identity.get(key)
        if number is None:
            self._alive.append(frames)
            text = ", ".join(filter(None, map(self._text, frames)))
            number = self._by_text.get(text) if text else -1
            if number is None:
                number = self._by_text[text] = len(self._by_text) + 1
                self._write('{"record": "stack", "id": %d, "frames": [%s]}\n' % (number, text))  # noqa: UP031
            self._by_identity[key] = number
        return number

    def _text(self, frame):
        text = self._texts.get(id(frame))
        if text is None:
            name = frame["filename"]
            text = "" if name.startswith(_OURS) else json.dumps([name, frame["line"], frame["name"]])
            self._texts[id(frame)] = text
        return text


def _module_lines(modules):
    for index, name in enumerate(modules.names):
        record = {"record": "module", "id": index + 1, "parent": modules.parents[index], "name": name, "type": modules.types[index]}
        yield json.dumps(record) + "\n"


def until(events, allocs, frees):
    """The events up to a position. Another thread of the script may have gone on since the position was read."""
    actions = [event["action"] for event in events]
    if (actions.count("alloc"), actions.count("free_requested")) == (allocs, frees):
        return events
    for index, action in enumerate(actions):
        if allocs <= 0 and frees <= 0 and action != _AFTER_ITS_CAUSE:
            return events[:index]
        allocs -= action == "alloc"
        frees -= action == "free_requested"
    return events


def write(file, records, recorder, operators, device, events, end):
    """`events`: the device's trace, as `_snapshot()` gives it. `records`: of the process; `end`: a record. `operators`: lines."""
    place = recorder.devices.index(device) if device in recorder.devices else 0
    write_line = file.write
    for record in records:
        write_line(json.dumps(record) + "\n")
    for code, message in recorder.warnings:
        write_line(json.dumps({"record": "warning", "code": code, "message": message}) + "\n")
    file.writelines(_module_lines(recorder.modules))
    file.writelines(operators)

    tensors = {}
    for sequence, lies_on, *fields in recorder.tensors:
        if lies_on != device:
            continue
        tensors.setdefault(sequence, []).append(json.dumps(["tensor", sequence, *fields]) + "\n")
    marks = sorted(mark for mark in recorder.marks if not mark[3].startswith(_OF_ONE_DEVICE) or mark[5] == device)
    next_mark = 0
    stacks = _Stacks(write_line)

    def write_marks(allocs, frees, all_left=False):
        nonlocal next_mark
        while next_mark < len(marks):
            sequence, position, *rest = marks[next_mark]
            here = position[place] if place < len(position) else (0, 0)
            if not all_left and (here[0] > allocs or here[1] > frees):
                return
            write_line(json.dumps(["mark", sequence, *here, *rest]) + "\n")
            file.writelines(tensors.pop(sequence, ()))
            next_mark += 1

    allocs = frees = 0
    for event in events:
        action = event["action"]
        if action != _AFTER_ITS_CAUSE:
            write_marks(allocs, frees)
        if action == "alloc":
            allocs += 1
        elif action == "free_requested":
            frees += 1
        stack = stacks.number(event.get("frames"))
        address = event["device_free"] if "device_free" in event else event.get("addr", 0)  # the former of an oom
        write_line('["%s", %d, %d, %d, %d, %d]\n' % (action, address, event["size"], event["stream"], stack, event.get("time_us", 0)))  # noqa: UP031
    write_marks(allocs, frees, all_left=True)
    write_line(json.dumps(end) + "\n")

"""Loops that ask the card until they like its answer: `while mask.any()`, `while True: ... if torch.allclose(new, old): break`.

The virtual GPU has no values, so its answer is always the same and such a loop would never end. After a number of equal answers to one
question the other answer is given, and the report names the line. All that the host reads and that is not known passes through `given()`.
Questions that are asked often in loops that do end keep their answers: see `_Question`.
"""

import contextlib
import dis
import functools
import os
import sys
import threading

from . import libraries, process

_FEW = 1_000  # equal answers, in a `while` loop where nothing else moves
_MANY = 20_000  # in any loop
_FAR = 1e3  # from one other answer to the next but one, where numbers are asked for

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_FOR = ("FOR_ITER", "SEND")

_FOLDER = os.path.dirname(__file__) + os.sep

_torch = None
_core = None
_on_condition = None  # the callback of the core: kept alive
_questions = {}  # (code, instruction) -> _Question
_steps = 0  # of optimizers
_expecting = threading.local()  # .answers: what the next questions of this thread are answered; .off: as they come


class _Question:
    """One that the script, or a library, asks at one instruction.

    Both counts begin anew with another answer and with an optimizer's step. That of the few also begins anew

    - with each call of the function that holds the loop: a loop that ends asks its last question once a call,
    - where data came from the host since: a loop over batches,
    - where more memory is allocated than before: a text that grows token by token.
    """

    __slots__ = ("activation", "answer", "few", "left", "many", "memory", "steps", "turned", "uploads")

    def __init__(self):
        self.activation = self.answer = self.uploads = self.steps = None
        self.few = self.left = self.many = self.memory = self.turned = 0


class _Activation:
    """Of a function: set as its frame's f_trace, which the frame keeps as long as it runs. Should a debugger start, it traces nothing."""

    __slots__ = ()

    def __call__(self, frame, event, argument):
        return None


# ---- in place ----------------------------------------------------------------------------------------------------------------------


def install(torch, core):
    """At the first CUDA call."""
    global _torch, _core, _on_condition
    _torch, _core = torch, core
    _on_condition = libraries.UNKNOWN_CONDITION(_condition)
    core.gpucast_vgpu_on_unknown_condition(_on_condition)


def stepped():
    """An optimizer has."""
    global _steps
    _steps += 1


@contextlib.contextmanager
def expecting(*answers):
    """What the next questions of this thread are answered, the last for all further ones; without any: what they would be by themselves,
    however often."""
    before = vars(_expecting).copy()
    _expecting.answers, _expecting.off = list(answers), not answers
    try:
        yield
    finally:
        _expecting.answers, _expecting.off = before.get("answers"), before.get("off", False)


def is_expected():
    """Whether the next question of this thread is."""
    return bool(getattr(_expecting, "answers", None))


def _condition():
    """The core's: one byte that is not known is read."""
    try:
        return int(given(False))
    except Exception:
        return 0


# ---- a question ----------------------------------------------------------------------------------------------------------------------


def given(value):
    """What the host gets where it would read `value`: False, True or a number. To be called once for each read."""
    answers = getattr(_expecting, "answers", None)
    if answers:
        return type(value)(answers[0] if len(answers) == 1 else answers.pop(0))
    question = _turned(bool(value))
    if question is None:
        return value
    if value:
        return type(value)(0)
    if isinstance(value, bool):
        return True
    number = _FAR ** ((question.turned - 1) // 2)  # 1, then further away, to both sides
    return type(value)(number if question.turned % 2 or isinstance(value, int) else -number)


def turns(answer):
    """Whether the other answer to a condition is due: what `given` does, for what is more than one number."""
    return not is_expected() and _turned(answer) is not None


def _turned(answer):
    """The question, where this was its answer too often."""
    if getattr(_expecting, "off", False) or process.state not in (process.ARMED, process.CLOCKED) or process.is_compiling():
        return None
    frame = _outside()
    loop = _loop_around(frame)
    if loop is None:
        return None
    question = _questions.setdefault((frame.f_code, frame.f_lasti), _Question())
    if question.steps != _steps:
        question.steps, question.turned, question.left = _steps, 0, 0
        question.answer = None
    if question.left > 0:
        question.left -= 1
        return question
    if question.answer != answer:
        question.answer, question.few, question.many = answer, 0, 0
    question.many += 1
    times = question.many if question.many == _MANY else _FEW if _few_are_enough(question, *loop) else None
    if times is None:
        return None
    process.recorder.warn(
        "loop_ended", f"{place()}: a loop asked what is not known and had the same answer {times:,} times; it was given the other one"
    )
    question.few = question.many = 0
    question.left = 2**question.turned - 1  # a loop may ask it of several tensors in each round, and want that answer of all
    question.turned += 1
    return question


def _few_are_enough(question, frame, ends_by_itself):
    if ends_by_itself:
        return False
    activation, uploads = _activation(frame), _core.gpucast_vgpu_uploads()
    if activation is not question.activation or uploads != question.uploads:
        question.few, question.activation, question.uploads = 0, activation, uploads
    question.few += 1
    if question.few not in (_FEW // 2, _FEW):  # PyTorch's counters take microseconds
        return False
    before, question.memory = question.memory, _torch.cuda.memory_allocated()
    if question.few < _FEW:
        return False
    question.few = 0
    return question.memory <= before


def _activation(frame):
    """The same object as long as this call of the function runs."""
    if frame.f_trace is None:
        frame.f_trace = _Activation()
    return frame.f_trace


# ---- where it is asked ---------------------------------------------------------------------------------------------------------------


def _outside(others=()):
    """The frame that is neither ours nor in one of these folders."""
    frame, folders = sys._getframe(1), (_FOLDER, *others)
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    return frame


def place():
    """Where the user's code, or a library's, is."""
    frame = _outside((os.path.dirname(_torch.__file__) + os.sep, "<"))
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "?"


def _loop_around(frame):
    """(its frame, whether it is a `for` loop) of the innermost loop that is being run; None: there is none."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FOLDER):
            around = [loop for loop in _loops(frame.f_code) if loop[0] <= frame.f_lasti <= loop[1]]
            if around:
                return frame, max(around)[2]
        frame = frame.f_back
    return None


@functools.cache
def _loops(code):
    """(first instruction, last, whether it is a `for` loop): whatever jumps back is a loop's end."""
    last, by_offset, head = {}, {}, None
    for instruction in dis.get_instructions(code):
        head = instruction.offset if head is None else head  # of an instruction with its prefixes
        if instruction.opname == "EXTENDED_ARG":
            continue
        by_offset[head] = instruction.opname
        if instruction.opcode in _JUMPS and instruction.argval <= instruction.offset:
            last[instruction.argval] = instruction.offset
        head = None
    return [(first, end, by_offset.get(first) in _FOR) for first, end in last.items()]

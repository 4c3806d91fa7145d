"""Loops that read from the card until they get the right answer: `while mask.any()`, `while True: ... if torch.allclose(new, old): break`.

The virtual GPU has no values, so it always gives the same answer, and such a loop would never end. After a number of equal answers to one
question it gives the other answer, and the report names the line. Each unknown number or condition that the host reads passes through
`given()`. In loops that end without it, a question keeps its answer: see `_Question`.
"""

import contextlib
import dis
import functools
import os
import sys
import threading

from . import asserts, libraries, patching, process

_FEW = 1_000  # equal answers in a `while` loop without other progress
_MANY = 20_000  # equal answers in any loop
_FAR = 1e3  # factor between the other answers to a read of a number

READS = ("item", "tolist", "__bool__", "__int__", "__float__")  # of torch.Tensor
NUMBERS = (bool, int, float)

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_FOR = ("FOR_ITER", "SEND")

_FOLDER = os.path.dirname(__file__) + os.sep

_torch = None
_core = None
_on_condition = None  # the callback of the core: kept alive
_questions = {}  # (code, instruction) -> _Question
_steps = 0  # number of optimizer steps
_expecting = threading.local()  # .answers: for the next questions of this thread; .off: questions are not counted


class _Question:
    """A read by one instruction of the script or of a library.

    Both counts restart after a different answer and after an optimizer's step. `few` also restarts

    - with each call of the function that contains the loop: a loop that ends asks its last question once per call,
    - when data were copied from the host: a loop over batches,
    - when more memory is allocated than before: a sequence that grows token by token.
    """

    __slots__ = ("activation", "answer", "few", "left", "many", "memory", "steps", "turned", "uploads")

    def __init__(self):
        self.activation = self.answer = self.uploads = self.steps = None
        self.few = self.left = self.many = self.memory = self.turned = 0


class _Activation:
    """One call of a function. Its frame keeps it as f_trace, so it lives as long as the call. If a debugger calls it, nothing happens."""

    __slots__ = ()

    def __call__(self, frame, event, argument):
        return None


# ---- installation ----------------------------------------------------------------------------------------------------------------------


def install(torch, core):
    """At the first CUDA call."""
    global _torch, _core, _on_condition
    _torch, _core = torch, core
    _on_condition = libraries.UNKNOWN_CONDITION(_condition)
    core.gpucast_vgpu_on_unknown_condition(_on_condition)


def watch_numbers():
    """Called if values are not followed. The core handles conditions of one byte."""
    for name in READS:
        patching.wrap(_torch.Tensor, name, _number)


def _number(real):
    def reading(tensor, *args, **kwargs):
        value = real(tensor, *args, **kwargs)
        asked = tensor.is_cuda and not process.is_compiling() and tensor.element_size() > 1 and not _core.gpucast_vgpu_read_known()
        return given(value) if asked and type(value) in NUMBERS else value

    return reading


def stepped():
    """An optimizer took a step."""
    global _steps
    _steps += 1


@contextlib.contextmanager
def expecting(*answers):
    """Sets the answers to this thread's next questions; the last one is for all further questions. Without answers nothing is counted."""
    before = vars(_expecting).copy()
    _expecting.answers, _expecting.off = list(answers), not answers
    try:
        yield
    finally:
        _expecting.answers, _expecting.off = before.get("answers"), before.get("off", False)


def is_expected():
    """Whether the answer to the next question of this thread is known."""
    return bool(getattr(_expecting, "answers", None))


def _condition():
    """The core reads one unknown byte."""
    try:
        return int(given(False))
    except Exception:
        return 0


# ---- a question ----------------------------------------------------------------------------------------------------------------------


def given(value):
    """The host's result instead of `value` (False, True or a number). Must be called once for each read."""
    answers = getattr(_expecting, "answers", None)
    if answers:
        return type(value)(answers[0] if len(answers) == 1 else answers.pop(0))
    held = isinstance(value, bool) and process.job_runs() and patching.safely(asserts.answer, _outside())
    if held:
        process.recorder.warn("value_assumed", "asserts of values on the card are assumed to hold")
        return held[0]
    question = patching.safely(_turned, value)
    if not question:
        return value
    if value:
        return type(value)(0)
    if isinstance(value, bool):
        return True
    number = _FAR ** ((question.turned - 1) // 2)  # 1, -1, 1000, -1000, ...
    return type(value)(number if question.turned % 2 or isinstance(value, int) else -number)


def turns(answer):
    """Whether it is time for the other answer: like `given`, for the number of conditions that hold."""
    return not is_expected() and bool(patching.safely(_turned, answer))


def _turned(answer):
    """The question, if it got `answer` too often; else None."""
    if getattr(_expecting, "off", False) or not process.job_runs() or process.is_compiling():
        return None
    frame = _outside()
    loop = _loop_around(frame)
    if loop is None:
        return None
    if type(answer) is not int or not loop[1]:  # drawn lengths differ from round to round: a `for` loop over them is well
        answer = bool(answer)
    question = _questions.setdefault((frame.f_code, frame.f_lasti), _Question())
    if question.steps != _steps:
        question.steps, question.turned, question.answer = _steps, 0, None
    if question.answer != answer:
        question.answer, question.few, question.many, question.left = answer, 0, 0, 0
    if question.left > 0:
        question.left -= 1
        return question
    question.many += 1
    times = question.many if question.many == _MANY else _FEW if _few_are_enough(question, *loop) else None
    if times is None:
        return None
    process.recorder.warn(
        "loop_ended",
        f"{place()}: a loop read an unknown value and got the same answer {times:,} times; it got the other answer then, so that it ends",
    )
    question.few = question.many = 0
    question.left = 2**question.turned - 1  # a loop may read several tensors in each round
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


# ---- its place ------------------------------------------------------------------------------------------------------------------------


def _outside(others=()):
    """The innermost frame that is neither ours nor in one of these folders."""
    frame, folders = sys._getframe(1), (_FOLDER, *others)
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    return frame


def place():
    """The place in the user's code or in a library."""
    frame = _outside((os.path.dirname(_torch.__file__) + os.sep, "<"))
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "?"


def _loop_around(frame):
    """(its frame, whether it is a `for` loop) of the innermost running loop; None: there is none."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FOLDER):
            around = [loop for loop in _loops(frame.f_code) if loop[0] <= frame.f_lasti <= loop[1]]
            if around:
                return frame, max(around)[2]
        frame = frame.f_back
    return None


@functools.cache
def _loops(code):
    """(first instruction, last, whether it is a `for` loop) of each loop: a jump back ends one."""
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

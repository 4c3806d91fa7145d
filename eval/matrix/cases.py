"""The cases of the matrix: which jobs are profiled on the CPU and run on the virtual GPU.

Every model, optimizer and place of zero_grad of the papers, but not all combinations. With these batches three iterations
take well below a minute on two CPU cores. Cases run in this order: varied small cases first.
"""

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    batch: int
    optimizer: str
    zero_grad: str
    seq: Optional[int] = None
    momentum: float = 0.0
    accumulate: int = 1
    no_mask: bool = False

    @property
    def name(self):
        words = [self.model, f"b{self.batch}", self.optimizer.lower() + ("m" if self.momentum else ""), self.zero_grad]
        words += [f"s{self.seq}"] if self.seq else []
        words += [f"acc{self.accumulate}"] if self.accumulate > 1 else []
        words += ["nomask"] if self.no_mask else []
        return "-".join(words)

    @property
    def is_cnn(self):
        return self.seq is None

    def arguments(self):
        """As train.py takes them."""
        words = ["--model", self.model, "--batch", self.batch, "--optimizer", self.optimizer, "--zero-grad", self.zero_grad]
        words += ["--seq", self.seq] if self.seq else []
        words += ["--momentum", self.momentum] if self.momentum else []
        words += ["--accumulate", self.accumulate] if self.accumulate > 1 else []
        words += ["--no-mask"] if self.no_mask else []
        return [str(word) for word in words]


START, BEFORE_BACKWARD, AFTER_STEP = "start", "before_backward", "after_step"

CASES = [
    Case("mobilenet_v3_small", 160, "AdamW", AFTER_STEP),
    Case("gpt2", 4, "AdamW", AFTER_STEP, 128),
    Case("convnext_tiny", 16, "AdamW", BEFORE_BACKWARD),
    Case("t5-small", 16, "AdamW", START, 128),
    Case("resnet101", 16, "Adam", START),
    Case("opt-125m", 4, "AdamW", START, 128),
    Case("mobilenet_v2", 64, "SGD", START),
    Case("gpt-neo-125m", 4, "Adam", BEFORE_BACKWARD, 128),
    Case("regnet_y_400mf", 80, "AdamW", START),
    Case("vgg16", 16, "SGD", START),
    Case("pythia-160m", 4, "Adam", START, 128),
    Case("mnasnet1_0", 64, "RMSprop", START),
    Case("cerebras-gpt-111m", 8, "AdamW", AFTER_STEP, 128),
    Case("regnet_x_400mf", 96, "SGD", BEFORE_BACKWARD),
    Case("distilgpt2", 8, "SGD", BEFORE_BACKWARD, 128, no_mask=True),
    Case("mobilenet_v3_large", 80, "Adagrad", BEFORE_BACKWARD),
    Case("opt-350m", 2, "SGD", START, 128),
    Case("convnext_base", 8, "Adam", START),
    Case("vgg19", 8, "AdamW", BEFORE_BACKWARD),
    Case("resnet152", 8, "SGD", BEFORE_BACKWARD, momentum=0.9),
    Case("gpt2", 4, "SGD", START, 128),
    Case("gpt2", 4, "Adafactor", BEFORE_BACKWARD, 128),
    Case("t5-small", 8, "Adafactor", AFTER_STEP, 128),
    Case("t5-small", 16, "SGD", BEFORE_BACKWARD, 128),
    Case("convnext_tiny", 24, "SGD", START),
    Case("convnext_tiny", 16, "RMSprop", AFTER_STEP),
    Case("mobilenet_v2", 64, "Adam", BEFORE_BACKWARD),
    Case("mobilenet_v2", 48, "RMSprop", AFTER_STEP),
    Case("mobilenet_v3_small", 200, "SGD", START),
    Case("mobilenet_v3_large", 64, "Adam", START),
    Case("mnasnet1_0", 80, "AdamW", AFTER_STEP),
    Case("regnet_x_400mf", 80, "Adam", AFTER_STEP),
    Case("regnet_y_400mf", 64, "Adagrad", AFTER_STEP),
    Case("vgg16", 8, "Adam", AFTER_STEP),
    Case("vgg19", 8, "Adagrad", START),
    Case("resnet101", 16, "SGD", AFTER_STEP),
    Case("resnet101", 12, "RMSprop", BEFORE_BACKWARD),
    Case("resnet152", 8, "AdamW", START),
    Case("convnext_base", 8, "Adagrad", AFTER_STEP),
    Case("convnext_base", 8, "SGD", BEFORE_BACKWARD),
    Case("distilgpt2", 4, "Adam", START, 128),
    Case("opt-125m", 4, "SGD", AFTER_STEP, 128),
    Case("opt-125m", 4, "Adafactor", BEFORE_BACKWARD, 128),
    Case("opt-350m", 2, "Adam", AFTER_STEP, 128),
    Case("gpt-neo-125m", 4, "SGD", AFTER_STEP, 128),
    Case("gpt-neo-125m", 2, "AdamW", START, 256),
    Case("cerebras-gpt-111m", 4, "Adafactor", START, 128),
    Case("cerebras-gpt-111m", 4, "SGD", BEFORE_BACKWARD, 128),
    Case("pythia-160m", 4, "SGD", AFTER_STEP, 128),
    Case("pythia-160m", 2, "AdamW", BEFORE_BACKWARD, 256),
    Case("qwen3-0.6b", 1, "SGD", START, 128),
    # Gradients of several batches added up before a step.
    Case("resnet101", 8, "AdamW", START, accumulate=2),
    Case("distilgpt2", 4, "AdamW", AFTER_STEP, 128, accumulate=2),
]

"""Examples that come with PyTorch, transformers, accelerate and DeepSpeed, and small programs that many people start from."""

from eval.made_data import at, characters
from trainers.trainer import Trainer

NANO_GPT = dict(repository="karpathy/nanoGPT", commit="3adf61e1", source="https://github.com/karpathy/nanoGPT#quick-start")

EXAMPLES = [
    Trainer(
        "nanoGPT",
        "python train.py config/train_shakespeare_char.py --max_iters=5 --eval_iters=2",
        steps=6,
        data=(at(characters, "data/shakespeare_char"),),
        remark="few iterations; made characters",
        **NANO_GPT,
    ),
]

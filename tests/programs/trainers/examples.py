"""Examples that come with PyTorch, transformers, accelerate and DeepSpeed, and small programs that many people start from."""

import random

from eval.made_data import at, characters, classes, mnist, text_data
from trainers.trainer import Trainer

NANO_GPT = dict(repository="karpathy/nanoGPT", commit="3adf61e1", source="https://github.com/karpathy/nanoGPT#quick-start")


def pytorch(folder, name="", **row):
    """An example of pytorch/examples."""
    return Trainer(
        f"PyTorch examples: {name or folder}",
        repository="pytorch/examples",
        commit="77f55b9",
        folder=folder,
        source=f"https://github.com/pytorch/examples/tree/main/{folder}",
        **row,
    )


def words(folder, train=4000):
    """The files of WikiText-2 with few words, in lines of twenty."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("valid", 2000), ("test", 2000)):
        drawn = random.Random(1).choices([f"word{i}" for i in range(10_000)], k=count)
        lines = (" ".join(drawn[i : i + 20]) for i in range(0, count, 20))
        (folder / f"{name}.txt").write_text("".join(f" {line} \n" for line in lines))


MADE_MNIST = at(mnist, "data", train=2560, test=512)
WORDS = at(words, "word_language_model/data/made")

EXAMPLES = [
    Trainer(
        "nanoGPT",
        "python train.py config/train_shakespeare_char.py --max_iters=5 --eval_iters=2",
        steps=6,
        data=(at(characters, "data/shakespeare_char"),),
        remark="few iterations; made characters",
        **NANO_GPT,
    ),
    pytorch(
        "word_language_model",
        command="python main.py --accel --epochs 1 --data data/made",
        steps=6,
        data=(WORDS,),
        remark="made words; its loop steps without an optimizer",
    ),
    pytorch(
        "word_language_model",
        "word_language_model, Transformer",
        command="python main.py --accel --epochs 1 --model Transformer --lr 5 --data data/made",
        steps=6,
        data=(WORDS,),
        remark="made words; its loop steps without an optimizer",
    ),
    pytorch("mnist", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch("vae", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch(
        "imagenet",
        command="python main.py -a resnet18 --epochs 1 -b 32 -j 1 made",
        steps=3,
        data=(at(classes, "imagenet/made/train", count=48), at(classes, "imagenet/made/val", count=16)),
        remark="made pictures",
    ),
    pytorch(
        "imagenet",
        "imagenet, 2 ranks",
        command="python main.py -a resnet50 --dist-url tcp://127.0.0.1:29555 --dist-backend nccl --multiprocessing-distributed"
        " --world-size 1 --rank 0 --epochs 1 -b 32 -j 2 made",
        steps=3,
        data=(at(classes, "imagenet/made/train", count=48), at(classes, "imagenet/made/val", count=16)),
        options=("--gpus", "2"),
        remark="made pictures",
    ),
    pytorch("dcgan", command="python main.py --dataset fake --accel --niter 1 --batchSize 200", steps=5, remark="its own fake pictures"),
    pytorch("siamese_network", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch(
        "distributed/minGPT-ddp/mingpt",
        "minGPT-ddp",
        command="torchrun --standalone --nproc_per_node=2 main.py data_config.path=made.txt trainer_config.max_epochs=1",
        steps=6,
        data=(at(text_data, "distributed/minGPT-ddp/mingpt/made.txt", size=60_000),),
        packages=(
            "hydra-core==1.3.2",
            "omegaconf==2.3.0",
            "antlr4-python3-runtime==4.9.3",
            "boto3==1.44.8",
            "botocore==1.44.8",
            "jmespath==1.1.0",
            "s3transfer==0.19.3",
        ),
        options=("--gpus", "2"),
        remark="made characters",
    ),
    pytorch(
        "distributed/FSDP2",
        "FSDP2",
        command="torchrun --nproc_per_node 2 example.py --mixed-precision",
        steps=10,
        options=("--gpus", "2"),
    ),
    pytorch(
        "distributed/tensor_parallelism",
        "tensor parallelism with FSDP",
        command="bash run_example.sh fsdp_tp_example.py 4",
        steps=10,
        options=("--gpus", "4"),
    ),
]

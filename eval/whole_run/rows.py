"""Public logs of whole trainings, each with its source, and the command that starts the same training here.

Measured seconds are the source's. `counted` says what part of each predicted part the source's time holds, where that is not all of it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from eval.made_data import at, characters
from eval.whole_run import made

SCRIPTS = Path(__file__).resolve().parent / "scripts"
MINUTE = 60
HOUR = 3600


@dataclass(frozen=True)
class Row:
    name: str
    maker: str
    source: str
    card: str  # gpucast's id
    measured_s: float
    command: str  # SCRIPTS stands for this package's folder of scripts
    software: str  # of the measured run
    samples: str
    lengths: str
    batch: int
    precision: str
    epochs: float
    steps: int
    evaluation: str
    checkpoints: str
    holds: str  # what the source's time holds
    repository: str = ""  # owner/name on GitHub
    commit: str = ""
    folder: str = "."  # of the checkout, where the command runs
    torch: str = ""  # another release than ENV's: the environment torch-RELEASE in the same folder
    packages: tuple = ()  # pip's requirements, installed without dependencies
    data: tuple = ()  # makers, called with the checkout's folder
    environment: dict = field(default_factory=dict)  # CHECKOUT stands for the checkout's folder
    told: tuple = ()  # further options of gpucast time
    counted: dict = field(default_factory=dict)  # the share of a part's time that the source's time holds; 1 for the others
    repeats: int = 1  # the command trains this many times, and the source's time is of one
    card_is: str = "named"  # or what was assumed
    rounded: bool = False  # the source gives one digit
    differs: str = ""  # from the measured run

    def checkout(self, checkouts: Path):
        name = self.repository.split("/")[1] if self.repository else "own-scripts"
        return (checkouts / name).resolve()


TRAINER = (
    "accelerate==1.6.0",
    "psutil==7.0.0",
)
PANDAS = ("pandas==2.3.3", "python-dateutil==2.9.0.post0", "pytz==2025.2", "tzdata==2025.2", "six==1.17.0")
HYSTS = (
    *("fvcore==0.1.5.post20221221", "iopath==0.1.10", "yacs==0.1.8", "termcolor==3.3.0", "portalocker==4.4.2"),
    *("thop==0.1.1.post2209072238", "tensorboard==2.20.0", "absl-py==2.3.1", "protobuf==6.32.1", "grpcio==1.75.0"),
    *("werkzeug==3.1.3", "markdown==3.9", "six==1.17.0", "tensorboard-data-server==0.7.2"),
)
LITGPT = (
    *("litgpt==0.5.13", "jsonargparse==4.41.0", "litdata==0.2.59", "tifffile==2025.5.10"),
    *("boto3==1.40.0", "botocore==1.40.0", "jmespath==1.0.1", "s3transfer==0.13.1"),
)

NO_START = {"start": 0}


def glue(task, measured_s, train, validation, epochs, steps, fp16=False, checkpoints=0):
    """A row of the table of transformers' example. Its evaluation comes after the training, outside of the table's time."""
    return Row(
        name=f"run_glue {task}{' fp16' if fp16 else ''}",
        maker="Hugging Face",
        source="https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/README.md",
        card="titanrtx",
        measured_s=measured_s,
        command=f"python SCRIPTS/fine_tune_classifier.py --train-samples {train} --validation-samples {validation} --epochs {epochs}"
        + (" --fp16" if fp16 else "")
        + f" --out out/{task.lower()}{'-fp16' if fp16 else ''}",
        software="PyTorch 1.6.0, transformers of 2020",
        samples=f"{train} + {validation}",
        lengths="128 tokens, padded",
        batch=32,
        precision="fp16 mixed" if fp16 else "fp32",
        epochs=epochs,
        steps=steps,
        evaluation="after the training, not in the time",
        checkpoints=f"{checkpoints}, every 500 steps",
        holds="the Trainer's train()",
        torch="2.6.0",
        packages=TRAINER,
        counted={"start": 0, "evaluation": 0},
        differs="our script with the example's calls; random weights; a newer PyTorch and transformers (eager attention as then)",
    )


def spam(name, options, measured_minutes, **row):
    """A row of the table of additional experiments in chapter 6. Of 367 batches of evaluation the time holds 180."""
    return Row(
        name=f"spam classifier, {name}",
        maker="Sebastian Raschka",
        source="https://github.com/rasbt/LLMs-from-scratch/tree/main/ch06/02_bonus_additional-experiments",
        card="a100-40",
        measured_s=measured_minutes * MINUTE,
        command=f"python additional_experiments.py --weights random {options}".rstrip(),
        software="PyTorch 2",
        samples="1045 + 149 + 300",
        lengths=row.pop("lengths", "120 tokens, padded"),
        batch=8,
        precision="fp32",
        epochs=5,
        steps=650,
        evaluation="10 batches every 50 steps, 10 every epoch",
        checkpoints="none",
        holds="the loop with its evaluations, not the last evaluation of all data",
        repository="rasbt/LLMs-from-scratch",
        commit="28c65cdf",
        folder="ch06/02_bonus_additional-experiments",
        torch="2.6.0",
        packages=PANDAS,
        data=(
            at(made.spam, "ch06/02_bonus_additional-experiments"),
            at(made.stand_in, "ch06/02_bonus_additional-experiments/tensorflow.py"),
            at(made.stand_in, "ch06/02_bonus_additional-experiments/tiktoken.py", text=made.TIKTOKEN),
        ),
        counted={"start": 0, "evaluation": 180 / 367},
        card_is="A100; form assumed SXM 40 GB",
        differs="random weights; made texts of the same number and longest length",
    )


def reviews(name, script, measured_minutes, precision, differs=""):
    """Fine-tuning DistilBERT on IMDb. Of 2081 batches of evaluation the time holds 1248."""
    return Row(
        name=f"DistilBERT on IMDb, {name}",
        maker="Sebastian Raschka",
        source="https://sebastianraschka.com/blog/2023/pytorch-faster.html",
        card="a100-40",
        measured_s=measured_minutes * MINUTE,
        command=f"python {script}",
        software="PyTorch 2.0, transformers 4.27, Lightning 2.0",
        samples="35000 + 5000 + 10000",
        lengths="512 tokens, padded",
        batch=12,
        precision=precision,
        epochs=3,
        steps=8748,
        evaluation="5000 samples every epoch",
        checkpoints="none" if "1_" in script else "the best epoch's",
        holds="the three epochs with their validations, not the test",
        repository="rasbt/faster-pytorch-blog",
        commit="e14b76d",
        data=(
            at(made.reviews, "."),
            at(made.distilbert, "distilbert-base-uncased"),
            at(made.stand_in, "watermark.py", text=made.WATERMARK),
        ),
        counted={"start": 0, "evaluation": 1248 / 2081},
        card_is="A100; form assumed SXM 40 GB",
        differs="random weights; newer PyTorch, transformers (fused attention) and Lightning" + differs,
    )


def airbench(accuracy, measured_s, epochs, steps):
    """Of a training's evaluations the time holds the last one, which takes six views of each picture."""
    views = -(-epochs // 1) + 6
    return Row(
        name=f"airbench{accuracy}",
        maker="Keller Jordan",
        source=f"https://github.com/KellerJordan/cifar10-airbench/blob/master/legacy/airbench{accuracy}.py",
        card="a100-80",
        measured_s=measured_s,
        command=f"python SCRIPTS/run_older.py airbench{accuracy}.py",
        software="PyTorch 2.1.2, CUDA 11.8",
        samples="50000 + 10000",
        lengths="32 x 32 pixels",
        batch=1024,
        precision="fp16",
        epochs=epochs,
        steps=steps,
        evaluation="10000 samples every epoch, not in the time; the last one, of six views, is",
        checkpoints="none",
        holds="a training's GPU time by CUDA events, without start and evaluations between epochs",
        repository="KellerJordan/cifar10-airbench",
        commit="f1c599c",
        folder="legacy",
        torch="2.6.0",
        data=(at(made.pictures, "legacy/cifar10"),),
        environment={"PYTHONPATH": "CHECKOUT/legacy"},
        told=("--steps-total", str(25 * steps)),
        counted={"start": 0, "evaluation": 6 / views},
        repeats=25,
        differs="made pictures; a newer PyTorch",
    )


def hysts(name, card, options, measured_s, lengths, steps, **row):
    return Row(
        name=name,
        maker="hysts",
        source="https://github.com/hysts/pytorch_image_classification#readme",
        card=card,
        measured_s=measured_s,
        command=f"python SCRIPTS/run_older.py train.py {options} train.use_apex False train.output_dir OUT",
        software="PyTorch of 2018 to 2020",
        lengths=lengths,
        precision="fp32",
        epochs=200,
        steps=steps,
        evaluation="10000 samples every epoch",
        checkpoints="2, every 100 epochs",
        holds="the training; the source does not say more",
        repository="hysts/pytorch_image_classification",
        commit="993089a",
        torch="2.6.0",
        packages=HYSTS,
        environment={"HOME": "CHECKOUT/home", "PYTHONPATH": "CHECKOUT"},
        told=("--epochs", "200"),
        differs="made pictures; a newer PyTorch; fp32 without Apex",
        **row,
    )


def litgpt(name, config, model, measured_minutes, samples, batch, epochs, steps, evaluation, checkpoints):
    folder = {"full": "tiny-llama/full", "lora": "llama-3.2-1B/lora"}[config]
    return Row(
        name=f"LitGPT {name}",
        maker="Lightning AI",
        source="https://github.com/Lightning-AI/litgpt/blob/main/config_hub/finetune/README.md",
        card="a10g",
        measured_s=measured_minutes * MINUTE,
        command=f"litgpt finetune_{config} --config config_hub/finetune/{folder}.yaml --out_dir OUT made/{model}",
        software="LitGPT of 2024",
        samples=samples,
        lengths="130 tokens on average with the template: estimated from the size of Alpaca's 52002 rows",
        batch=batch,
        precision="bf16",
        epochs=epochs,
        steps=steps,
        evaluation=evaluation,
        checkpoints=checkpoints,
        holds="the training loop with its evaluations",
        repository="Lightning-AI/litgpt",
        commit="2685705",
        packages=LITGPT,
        data=(at(made.litgpt_model, f"made/{model}", name=model), at(made.alpaca, "mhenrichsen/alpaca_2k_test")),
        counted=NO_START,
        differs="zeros as weights; made texts of the estimated lengths",
    )


ROWS = [
    glue("MRPC", 2 * MINUTE + 21, 3668, 408, 5, 575, checkpoints=1),
    glue("MRPC", 1 * MINUTE + 10, 3668, 408, 5, 575, fp16=True, checkpoints=1),
    glue("CoLA", 3 * MINUTE + 17, 8551, 1043, 3, 804, checkpoints=1),
    glue("SST-2", 13 * MINUTE + 11, 67_349, 872, 3, 6315, fp16=True, checkpoints=12),
    Row(
        name="run_xnli mBERT",
        maker="Hugging Face",
        source="https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/README.md",
        card="v100-16",
        measured_s=106 * MINUTE,
        command="python SCRIPTS/fine_tune_classifier.py --train-samples 392702 --validation-samples 2490 --epochs 2 --classes 3"
        " --vocabulary 119547 --save-steps -1 --out out/xnli",
        software="PyTorch 1, transformers of 2020",
        samples="392702 + 2490",
        lengths="128 tokens, padded",
        batch=32,
        precision="fp32",
        epochs=2,
        steps=24_544,
        evaluation="once, after the training",
        checkpoints="none",
        holds="the run",
        torch="2.6.0",
        packages=TRAINER,
        card_is="Tesla V100 16GB; form assumed SXM2",
        differs="our script with the example's calls; random weights; a newer PyTorch and transformers (eager attention as then)",
    ),
    spam("all layers", "--trainable_layers all", 0.69),
    spam("last block of gpt2-large", '--model_size "gpt2-large (774M)"', 1.50),
    spam("1024 tokens", "--context_length model_context_length", 2.46, lengths="1024 tokens, padded"),
    reviews("plain PyTorch", "1_pytorch-distilbert.py", 22.63, "fp32"),
    reviews("Lightning, mixed precision", "3_amp.py", 8.75, "fp16 mixed"),
    airbench(94, 3.83, 9.9, 476),
    airbench(96, 34.7, 37.0, 1776),
    Row(
        name="hlb-CIFAR10",
        maker="tysam-code",
        source="https://github.com/tysam-code/hlb-CIFAR10#main",
        card="a100-40",
        measured_s=6.3,
        command="python SCRIPTS/run_older.py main.py",
        software="PyTorch 2.0",
        samples="50000 + 10000",
        lengths="32 x 32 pixels",
        batch=1024,
        precision="fp16",
        epochs=12.1,
        steps=581,
        evaluation="10000 samples every epoch, not in the time",
        checkpoints="none",
        holds="a training's time by CUDA events, without start and evaluations",
        repository="tysam-code/hlb-CIFAR10",
        commit="9939652",
        torch="2.6.0",
        data=(at(made.normalized_pictures, "data.pt"),),
        environment={"PYTHONPATH": "CHECKOUT"},
        told=("--steps-total", str(25 * 581)),
        counted={"start": 0, "evaluation": 0},
        repeats=25,
        card_is="A100; form assumed SXM 40 GB",
        differs="made pictures; a newer PyTorch",
    ),
    Row(
        name="nanoGPT shakespeare_char",
        maker="Andrej Karpathy",
        source="https://github.com/karpathy/nanoGPT#quick-start",
        card="a100-40",
        measured_s=3 * MINUTE,
        command="python train.py config/train_shakespeare_char.py",
        software="PyTorch 2.0",
        samples="1003854 + 111540 characters",
        lengths="256 characters",
        batch=64,
        precision="bf16 mixed, torch.compile",
        epochs=1,
        steps=5000,
        evaluation="400 batches every 250 steps",
        checkpoints="each time the validation improves",
        holds="the training run; the source says about 3 minutes",
        repository="karpathy/nanoGPT",
        commit="3adf61e1",
        torch="2.6.0",
        data=(at(characters, "data/shakespeare_char"),),
        told=("--steps-total", "5000"),
        card_is="A100; form assumed SXM 40 GB",
        rounded=True,
        differs="made characters; a newer PyTorch",
    ),
    hysts(
        "WRN-28-10 with RICAP",
        "v100-16",
        "--config configs/cifar/wrn.yaml train.base_lr 0.2 train.batch_size 512 scheduler.epochs 200 scheduler.type cosine"
        " augmentation.use_ricap True augmentation.use_random_crop False",
        3 * HOUR + 41 * MINUTE,
        "32 x 32 pixels",
        19_400,
        samples="50000 + 10000",
        batch=512,
        data=(at(made.cifar10, "home/.torch/datasets/CIFAR10"),),
        card_is="Tesla V100; form assumed SXM2",
    ),
    hysts(
        "ResNet-preact-20, four times as wide",
        "gtx1080ti",
        "--config configs/cifar/resnet_preact.yaml model.resnet_preact.depth 20 model.resnet_preact.initial_channels 64 train.base_lr 0.2"
        " scheduler.epochs 200 scheduler.type cosine",
        1 * HOUR + 26 * MINUTE,
        "32 x 32 pixels",
        78_000,
        samples="50000 + 10000",
        batch=128,
        data=(at(made.cifar10, "home/.torch/datasets/CIFAR10"),),
    ),
    hysts(
        "ResNet-preact-20 on FashionMNIST",
        "gtx1080ti",
        "--config configs/cifar/resnet_preact.yaml dataset.name FashionMNIST model.resnet_preact.depth 20 train.base_lr 0.2"
        " scheduler.epochs 200 scheduler.type cosine",
        26 * MINUTE,
        "28 x 28 pixels",
        93_600,
        samples="60000 + 10000",
        batch=128,
        data=(at(made.fashion, "home/.torch/datasets"),),
    ),
    Row(
        name="cifar10-fast",
        maker="David Page",
        source="https://github.com/davidcpage/cifar10-fast/blob/master/logs.tsv",
        card="v100-16",
        measured_s=0.02056706 * HOUR,
        command="python SCRIPTS/run_older.py dawn.py",
        software="PyTorch 1.0, AMI 11.0",
        samples="50000 + 10000",
        lengths="32 x 32 pixels",
        batch=512,
        precision="fp16",
        epochs=24,
        steps=2328,
        evaluation="10000 samples every epoch, not in the time",
        checkpoints="none",
        holds="the epochs and about 2 s of preparing the pictures, not the evaluations",
        repository="davidcpage/cifar10-fast",
        commit="f79e8b8",
        torch="2.6.0",
        packages=PANDAS,
        data=(at(made.cifar10, "data"),),
        environment={"PYTHONPATH": "CHECKOUT"},
        counted={"start": 0, "evaluation": 0},
        card_is="AWS p3.2xlarge",
        differs="made pictures; a newer PyTorch",
    ),
    litgpt(
        *("TinyLlama, all weights", "full", "tiny-llama-1.1b", 2.58, "1923 + 77", 4, 1, 60),
        "2 batches at the start, 20 every 25 steps with 100 generated tokens",
        "none before the end",
    ),
    litgpt(
        *("Llama 3.2 1B, LoRA", "lora", "Llama-3.2-1B", 4.17, "1900 + 100", 1, 2, 475),
        "2 batches at the start, 100 every 100 steps with 100 generated tokens",
        "2, every 200 steps",
    ),
]

"""`gpucast fit` without --vary, asked of public training scripts of different makers as they stand.

    python -m eval.fit.public_scripts --checkouts DIR --python ENV/bin/python [--only nanoGPT,DINO] --out OUT [--page]

DIR has a clone of each script's repository at its commit, in a folder of the script's name. Their data sets are made here: noise of the
right form. ENV has PyTorch and what the scripts import. Rows stay in OUT, so a run that was interrupted goes on.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from eval import page
from eval.made_data import (
    at,
    boxes,
    characters,
    classes,
    hours,
    images,
    mnist,
    small_llama,
    stories,
    text_data,
    texts,
    tokenizer,
    yolo_weights,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/fit.md"
CARDS = "rtx3060"


@dataclass(frozen=True)
class Script:
    name: str
    repository: str
    commit: str
    command: str
    folder: str = "."
    data: tuple = ()  # functions of the checkout's folder
    python_path: str = ""


SCRIPTS = [
    Script("nanoGPT", "karpathy/nanoGPT", "3adf61e1", "python train.py config/train_shakespeare_char.py", data=(at(characters, "data/shakespeare_char"),)),
    Script("ng-video-lecture", "karpathy/ng-video-lecture", "5220142", "python gpt.py", data=(at(text_data, "input.txt"),)),
    Script("PyTorch examples: ImageNet", "pytorch/examples", "77f55b9", "python main.py -a resnet18 --dummy", "imagenet"),
    Script("Pytorch-UNet", "milesial/Pytorch-UNet", "21d7850", "python train.py --amp", data=(at(images, "data/imgs", count=800), at(images, "data/masks", count=800, name="{}_mask.gif"))),
    Script("PyTorch-GAN: DCGAN", "eriklindernoren/PyTorch-GAN", "36d3c77", "python dcgan.py", "implementations/dcgan", (at(mnist, "data/mnist"),)),
    Script("pytorch-tutorial: CNN", "yunjey/pytorch-tutorial", "0500d3d", "python main.py", "tutorials/02-intermediate/convolutional_neural_network", (at(mnist, "tutorials/data"),)),
    Script("x-transformers: enwik8", "lucidrains/x-transformers", "9252ed7", "python train_enwik8.py", data=(at(text_data, "data/enwik8.gz", size=95_000_000),)),
    Script("LitGPT", "Lightning-AI/litgpt", "26857050", "litgpt pretrain --config config_hub/pretrain/debug.yaml", data=(at(stories, "data/tinystories"), at(tokenizer, "checkpoints/EleutherAI/pythia-14m"))),
    Script("lightning-hydra-template", "ashleve/lightning-hydra-template", "bddbc24", "python src/train.py trainer=gpu", data=(at(mnist, "data"),)),
    Script("Barlow Twins", "facebookresearch/barlowtwins", "8e8d284", "python main.py data --epochs 1000 --batch-size 2048 --learning-rate-weights 0.2 --lambd 0.0051 --projector 8192-8192-8192", data=(at(classes, "data/train"),)),
    Script("SimSiam", "facebookresearch/simsiam", "a7bc177", "python main_simsiam.py -a resnet50 --dist-url tcp://localhost:10001 --multiprocessing-distributed --world-size 1 --rank 0 --fix-pred-lr data", data=(at(classes, "data/train"),)),
    Script("timm", "huggingface/pytorch-image-models", "aa4b5850", "python train.py --data-dir data --model resnet50 --sched cosine --epochs 150 --amp --lr 0.1 -j 2", data=(at(classes, "data/train"), at(classes, "data/validation"))),
    Script("CleanRL: DQN", "vwxyzjn/cleanrl", "fe8d8a03", "python cleanrl/dqn.py --env-id CartPole-v1 --learning-starts 100", python_path="."),
    Script("OpenCLIP", "mlfoundations/open_clip", "89fb801", "python -m open_clip_train.main --dataset-type synthetic --train-num-samples 100000 --model RN50", "src"),
    Script("diffusers: unconditional", "huggingface/diffusers", "58eb52c080", "accelerate launch train_unconditional.py --train_data_dir data --resolution=64 --center_crop --random_flip --output_dir=out --train_batch_size=16 --num_epochs=100 --gradient_accumulation_steps=1 --use_ema --learning_rate=1e-4 --lr_warmup_steps=500 --mixed_precision=no", "examples/unconditional_image_generation", (at(images, "examples/unconditional_image_generation/data", count=2000),)),
    Script("YOLOv5", "ultralytics/yolov5", "5081342f0", "python train.py --data data/made/data.yaml --epochs 300 --weights '' --cfg yolov5n.yaml --noautoanchor", data=(at(boxes, "data/made"), yolo_weights)),
    Script("Lightning: autoencoder", "Lightning-AI/pytorch-lightning", "7f0c3436cd", "python autoencoder.py --trainer.accelerator gpu --trainer.devices 1", "examples/pytorch/basics", (at(mnist, "examples/pytorch/basics/data"), at(mnist, "examples/Datasets"))),
    Script("DeepSpeedExamples: GAN", "deepspeedai/DeepSpeedExamples", "45b4b715", "deepspeed gan_deepspeed_train.py --dataset fake --cuda --deepspeed_config gan_deepspeed_config.json --tensorboard_path ./runs/deepspeed", "training/gan"),
    Script("TRL: SFT", "huggingface/trl", "f2cd57710", "python trl/scripts/sft.py --model_name_or_path data/model --dataset_name data/text --output_dir out", data=(at(small_llama, "data"),)),
    Script("TorchTitan", "pytorch/torchtitan", "b5bcd76c6", "torchrun --nproc_per_node=1 -m torchtitan.train --module llama3 --config llama3_debugmodel", data=(at(texts, "tests/assets/c4_test/data.json"),)),
    Script("Megatron-LM", "NVIDIA/Megatron-LM", "69a5c63241", "torchrun --nproc_per_node 1 pretrain_gpt.py --mock-data --num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --train-iters 1000 --lr 1e-4 --bf16 --tokenizer-type NullTokenizer --vocab-size 50256 --transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion --eval-interval 100"),
    Script("Time-Series-Library", "thuml/Time-Series-Library", "4e938a1", "python -u run.py --task_name long_term_forecast --is_training 1 --root_path ./dataset/ETT-small/ --data_path ETTh1.csv --model_id ETTh1_96_96 --model PatchTST --data ETTh1 --features M --seq_len 96 --label_len 48 --pred_len 96 --e_layers 1 --d_layers 1 --factor 3 --enc_in 7 --dec_in 7 --c_out 7 --des Exp --n_heads 2 --itr 1", data=(at(hours, "dataset/ETT-small/ETTh1.csv"),)),
]  # fmt: skip


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--only", type=lambda words: words.split(","), default=[])
    parser.add_argument("--again", action="store_true", help="ask also those that have a row")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", action="store_true", help="renew docs/results/fit.md")
    return parser.parse_args()


def checkout_of(args, script):
    return (args.checkouts / script.repository.split("/")[1]).resolve()


def ask(args, script):
    checkout = checkout_of(args, script)
    made = checkout / ".made"
    if not made.exists():
        for make in script.data:
            make(checkout)
        made.touch()
    environment = {
        **os.environ,
        "PATH": f"{args.python.parent.resolve()}:{os.environ['PATH']}",
        "PYTHONPATH": str(checkout / script.python_path) if script.python_path else "",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "YOLOV5_CONFIG_DIR": str(checkout / "data/made"),
    }
    words = [os.environ.get("GPUCAST_BIN", "gpucast"), "fit", "--gpu", CARDS, "--format", "json", "--timeout", "300", "--"]
    done = subprocess.run(
        [*words, *shlex.split(script.command)],
        cwd=checkout / script.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    row = {"name": script.name}
    if done.returncode > 1:
        return {**row, "problem": " ".join(done.stderr.split())}
    report = json.loads(done.stdout)
    return {
        **row,
        "setting": report["setting"],
        "run_count": report["run_count"],
        "seconds": report["seconds"],
        "notes": report["notes"],
        "answers": report["answers"],
    }


def setting(text):
    """Without its number: "--batch-size 1" -> "--batch-size"."""
    return re.sub(r"([ =]|: )\d+( in |$| of )", lambda found: " of " if found[2] == " of " else found[2], text)


def largest(answer):
    return "-" if answer["values"] is None else str(next(iter(answer["values"].values())))


def table(rows):
    by_name = {row["name"]: row for row in rows}
    cards = CARDS.split(",")
    lines = [f"| script | commit | varied | {' | '.join(cards)} | runs | remark |", f"|---|---|---|{'---:|' * len(cards)}---:|---|"]
    for script in SCRIPTS:
        row = by_name.get(script.name)
        if row is None:
            continue
        name = f"{script.repository}: `{script.command}`"
        if "problem" in row:
            lines.append(f"| {name} | {script.commit} | {'| ' * (len(cards) + 2)}{row['problem']} |")
            continue
        values = " | ".join(largest(answer) for answer in row["answers"])
        lines.append(f"| {name} | {script.commit} | {setting(row['setting'])} | {values} | {row['run_count']} | {' '.join(row['notes'])} |")
    found = sum("problem" not in row and all(answer["values"] for answer in row["answers"]) for row in rows)
    return "\n".join([f"{found} of {len(rows)} have an answer on each card.", "", *lines])


def main():
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / "public.jsonl"
    done = {row["name"]: row for row in map(json.loads, journal.read_text().splitlines())} if journal.exists() else {}
    for script in SCRIPTS:
        if not checkout_of(args, script).is_dir() or (args.only and script.name not in args.only):
            continue
        if args.again or script.name not in done:
            done[script.name] = ask(args, script)
            with open(journal, "a", encoding="utf-8") as file:
                file.write(json.dumps(done[script.name]) + "\n")
    rows = [done[script.name] for script in SCRIPTS if script.name in done]
    print(table(rows))
    if args.page:
        command = "python -m eval.fit.public_scripts --checkouts DIR --python ENV/bin/python --out OUT"
        page.write(PAGE, command, f"{len(rows)} public scripts", {"public": table(rows)})


if __name__ == "__main__":
    main()

"""Trainers of vision, speech, graphs and reinforcement learning."""

import json
import pickle
from pathlib import Path

from eval.made_data import at, boxes, classes, images, yolo_weights
from trainers.trainer import Trainer

GYMNASIUM = ("gymnasium==1.4.0", "cloudpickle==3.1.3", "farama-notifications==0.0.6")
DIFFUSERS = dict(repository="huggingface/diffusers", commit="58eb52c0", python_path="src")
TORCHVISION = dict(repository="pytorch/vision", commit="bf01bab6")


def coco(folder, count=8):
    """Pictures with a person each, and their annotations in COCO's form."""
    for name in ("train", "val"):
        images(folder / f"{name}2017", count=count, name="{:012}.jpg")
        corner = [64, 64, 192, 64, 192, 192, 64, 192]
        person = {"category_id": 1, "bbox": [64, 64, 128, 128], "area": 128 * 128, "iscrowd": 0, "segmentation": [corner]}
        annotations = {
            "info": {},
            "images": [{"id": i, "file_name": f"{i:012}.jpg", "width": 256, "height": 256} for i in range(count)],
            "annotations": [{"id": i + 1, "image_id": i, **person} for i in range(count)],
            "categories": [{"id": 1, "name": "person"}],
        }
        path = folder / f"annotations/instances_{name}2017.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(annotations))


def cora(folder, nodes=800, tested=100, labelled=140, features=64):
    """The files of PyTorch Geometric's Planetoid."""
    import numpy as np
    from scipy.sparse import csr_matrix

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    x = csr_matrix(random.integers(0, 2, (nodes, features)).astype(np.float32))
    y = np.eye(7, dtype=np.int32)[random.integers(0, 7, nodes)]
    rest = nodes - tested
    parts = {"x": x[:labelled], "allx": x[:rest], "tx": x[rest:], "y": y[:labelled], "ally": y[:rest], "ty": y[rest:]}
    parts["graph"] = {i: random.integers(0, nodes, 4).tolist() for i in range(nodes)}
    for name, part in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("".join(f"{i}\n" for i in range(rest, nodes)))


def no_xcit(folder):
    """torch.hub asks for the list of XCiT's models before it reads the arguments."""
    hub = folder / "hub/facebookresearch_xcit_main"
    hub.mkdir(parents=True, exist_ok=True)
    (hub / "hubconf.py").touch()


def camvid(folder, count=3):
    for name in ("train", "val"):
        images(folder / name, count=count)
        images(folder / f"{name}_labels", count=count, name="{}_L.png")
    (folder / "class_dict.csv").write_text("name,r,g,b\n" + "".join(f"{i},{i},0,0\n" for i in range(32)))


def resnet50(folder):
    """The backbone's weights, random, where torchvision downloads them."""
    import torch
    import torchvision

    folder.mkdir(parents=True, exist_ok=True)
    torch.save(torchvision.models.resnet50().state_dict(), folder / "resnet50-0676ba61.pth")


def captioned(folder, count=4):
    images(folder, count=count)
    (folder / "metadata.jsonl").write_text("".join(f'{{"file_name": "{i}.jpg", "text": "one two"}}\n' for i in range(count)))


def stable_diffusion(folder):
    """A pipeline of random weights in the form of Stable Diffusion 1."""
    import diffusers
    import transformers

    words = folder.parent / "words"
    words.mkdir(parents=True, exist_ok=True)
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (words / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    (words / "merges.txt").write_text("#version: 0.2\n")
    size = len(vocabulary)
    text = transformers.CLIPTextConfig(
        vocab_size=size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, eos_token_id=size - 1
    )
    diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(32, 64)
        ),
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=transformers.CLIPTokenizer(str(words / "vocab.json"), str(words / "merges.txt"), model_max_length=77),
        unet=diffusers.UNet2DConditionModel(
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(32, 64),
            cross_attention_dim=32,
            layers_per_block=2,
        ),
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
    ).save_pretrained(folder)


VISION = [
    Trainer(
        "timm",
        "python train.py --data-dir data --model resnet18 --sched cosine --epochs 1 --amp --lr 0.1 -j 2 -b 16",
        steps=5,
        repository="huggingface/pytorch-image-models",
        commit="aa4b5850",
        source="https://huggingface.co/docs/timm/training_script",
        data=(at(classes, "data/train", count=40), at(classes, "data/validation", count=20)),
        remark="resnet18; 80 made pictures",
    ),
    Trainer(
        "Ultralytics",
        "yolo detect train data=data/data.yaml model=yolo11n.yaml epochs=1 imgsz=320 batch=8 nbs=8 workers=1 project=CHECKOUT/runs",
        steps=5,
        source="https://docs.ultralytics.com/modes/train/#usage-examples",
        data=(at(boxes, "data", count=40),),
        remark="40 made pictures of 320 pixels, one epoch",
    ),
    Trainer(
        "OpenCLIP",
        "python -m open_clip_train.main --dataset-type synthetic --train-num-samples 64 --model RN50 --batch-size 16 --epochs 1",
        steps=4,
        repository="mlfoundations/open_clip",
        commit="89fb801f",
        folder="src",
        source="https://github.com/mlfoundations/open_clip#training-clip",
        packages=("ftfy==6.3.1", "braceexpand==0.1.7", "webdataset==1.0.2"),
        remark="64 synthetic samples",
    ),
    Trainer(
        "YOLOv5",
        "python train.py --data data/made/data.yaml --epochs 1 --weights '' --cfg yolov5n.yaml --noautoanchor --batch-size 8 --img 320 --workers 2",
        steps=5,
        repository="ultralytics/yolov5",
        commit="5081342f",
        source="https://docs.ultralytics.com/yolov5/tutorials/train_custom_data/",
        data=(at(boxes, "data/made", count=40), at(yolo_weights, ".")),
        environment=(("YOLOV5_CONFIG_DIR", "data/made"),),
        packages=("seaborn==0.13.2",),
        remark="40 made pictures of 320 pixels, one epoch",
    ),
    Trainer(
        "Pytorch-UNet",
        "python train.py --amp --epochs 1 --scale 0.25 --batch-size 4",
        steps=5,
        repository="milesial/Pytorch-UNet",
        commit="21d7850f",
        source="https://github.com/milesial/Pytorch-UNet#training",
        packages=("wandb==0.28.0", "sentry-sdk==2.75.0", "gitpython==3.2.1", "gitdb==4.0.12", "smmap==5.0.3"),
        data=(at(images, "data/imgs", count=22), at(images, "data/masks", count=22, name="{}_mask.gif")),
        remark="22 made pictures at a quarter of their size",
    ),
    Trainer(
        "CleanRL PPO",
        "python cleanrl/ppo.py --seed 1 --env-id CartPole-v1 --total-timesteps 256 --num-steps 32 --update-epochs 2",
        steps=16,
        repository="vwxyzjn/cleanrl",
        commit="fe8d8a03",
        source="https://docs.cleanrl.dev/rl-algorithms/ppo/#usage",
        packages=GYMNASIUM,
        remark="256 steps of the game",
    ),
    Trainer(
        "CleanRL DQN",
        "python cleanrl/dqn.py --env-id CartPole-v1 --total-timesteps 181 --learning-starts 100",
        steps=8,
        repository="vwxyzjn/cleanrl",
        commit="fe8d8a03",
        source="https://docs.cleanrl.dev/rl-algorithms/dqn/#usage",
        packages=GYMNASIUM,
        python_path=".",
        remark="181 steps of the game",
    ),
    Trainer(
        "torchvision classification",
        "torchrun --nproc_per_node=1 train.py --model resnet18 --data-path CHECKOUT/made/classes --epochs 1 --batch-size 8 -j 2",
        steps=5,
        folder="references/classification",
        source="https://github.com/pytorch/vision/tree/main/references/classification#resnet",
        data=(at(classes, "made/classes/train", names="abcde", count=8), at(classes, "made/classes/val", names="abcde", count=2)),
        remark="40 made pictures; one rank",
        **TORCHVISION,
    ),
    Trainer(
        "torchvision detection",
        "torchrun --nproc_per_node=1 train.py --dataset coco --data-path CHECKOUT/made/coco --model maskrcnn_resnet50_fpn --epochs 1"
        " --lr-steps 16 22 --aspect-ratio-group-factor 3 -j 1",
        steps=4,
        folder="references/detection",
        source="https://github.com/pytorch/vision/tree/main/references/detection#mask-r-cnn",
        packages=("pycocotools==2.0.11",),
        data=(at(coco, "made/coco"),),
        remark="8 made pictures; random weights; one rank",
        **TORCHVISION,
    ),
    Trainer(
        "torchvision segmentation",
        "torchrun --nproc_per_node=1 train.py --lr 0.02 --dataset coco -b 2 --model lraspp_mobilenet_v3_large --epochs 1"
        " --data-path CHECKOUT/made/coco -j 1",
        steps=4,
        folder="references/segmentation",
        source="https://github.com/pytorch/vision/tree/main/references/segmentation#fcn_resnet50",
        packages=("pycocotools==2.0.11",),
        data=(at(coco, "made/coco"),),
        remark="8 made pictures; random weights; one rank",
        **TORCHVISION,
    ),
    Trainer(
        "diffusers unconditional",
        "accelerate launch train_unconditional.py --train_data_dir data --resolution=32 --center_crop --random_flip --output_dir=out"
        " --train_batch_size=4 --num_epochs=1 --gradient_accumulation_steps=1 --use_ema --learning_rate=1e-4 --lr_warmup_steps=500"
        " --mixed_precision=no --ddpm_num_inference_steps=2",
        steps=3,
        folder="examples/unconditional_image_generation",
        source="https://github.com/huggingface/diffusers/tree/main/examples/unconditional_image_generation",
        data=(at(images, "examples/unconditional_image_generation/data", count=12),),
        remark="12 made pictures of 32 pixels, two inference steps",
        **DIFFUSERS,
    ),
    Trainer(
        "Stable-Baselines3 PPO",
        """python -c 'from stable_baselines3 import PPO; model = PPO("MlpPolicy", "CartPole-v1", n_steps=256).learn(256)'""",
        steps=40,
        source="https://github.com/DLR-RM/stable-baselines3#example",
        packages=("stable-baselines3==2.9.2", *GYMNASIUM),
        remark="256 steps of the game",
    ),
    Trainer(
        "PyTorch Geometric GCN",
        "python gcn.py --epochs 5",
        steps=5,
        repository="pyg-team/pytorch_geometric",
        commit="5c6461b2",
        folder="examples",
        source="https://github.com/pyg-team/pytorch_geometric/tree/master/examples",
        data=(at(cora, "data/Planetoid/Cora/raw"),),
        remark="a made graph of 800 nodes",
    ),
    Trainer(
        "DINO",
        "torchrun --nproc_per_node=1 main_dino.py --arch vit_tiny --data_path data/train --output_dir out --epochs 1 --batch_size_per_gpu 4"
        " --local_crops_number 2 --num_workers 1 --warmup_epochs 0 --out_dim 4096",
        steps=3,
        repository="facebookresearch/dino",
        commit="7c446df5",
        source="https://github.com/facebookresearch/dino#vanilla-dino-training-sauropod",
        data=(at(classes, "data/train", count=6), at(Path.mkdir, "out", exist_ok=True), at(no_xcit, "data/torch")),
        environment=(("TORCH_HOME", "data/torch"),),
        remark="ViT-tiny, 12 made pictures, two local crops; torchrun; without XCiT, which it would download",
    ),
    Trainer(
        "MMEngine segmentation",
        "python examples/segmentation/train.py",
        steps=10,
        repository="open-mmlab/mmengine",
        commit="25434293",
        source="https://github.com/open-mmlab/mmengine/tree/main/examples/segmentation",
        packages=("mmengine==0.10.7", "addict==2.4.0", "termcolor==3.3.0", "yapf==0.43.0", "numpy==1.26.4"),
        data=(at(camvid, "data/CamVid"), at(resnet50, "data/torch/hub/checkpoints")),
        environment=(("TORCH_HOME", "data/torch"),),
        remark="3 made pictures: an epoch is one step; random weights",
    ),
    Trainer(
        "diffusers text to image, LoRA",
        "accelerate launch train_text_to_image_lora.py --mixed_precision=fp16 --pretrained_model_name_or_path=made/model"
        " --train_data_dir=made/pictures --caption_column=text --resolution=64 --random_flip --train_batch_size=1 --num_train_epochs=1"
        " --checkpointing_steps=5000 --learning_rate=1e-04 --lr_scheduler=constant --lr_warmup_steps=0 --seed=42 --output_dir=out",
        steps=4,
        folder="examples/text_to_image",
        source="https://github.com/huggingface/diffusers/tree/main/examples/text_to_image#training-with-lora",
        data=(at(stable_diffusion, "examples/text_to_image/made/model"), at(captioned, "examples/text_to_image/made/pictures")),
        remark="a model of 2 million parameters; 4 made pictures; no validation",
        **DIFFUSERS,
    ),
    Trainer(
        "MONAI U-Net",
        "python unet_training_array.py",
        steps=50,
        repository="Project-MONAI/tutorials",
        commit="b3c6c998",
        folder="2d_segmentation/torch",
        source="https://github.com/Project-MONAI/tutorials/tree/main/2d_segmentation",
        packages=("monai==1.6.1",),
    ),
]

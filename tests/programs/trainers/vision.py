"""Trainers of vision, speech, graphs and reinforcement learning."""

import json

from eval.made_data import at, boxes, classes, images, yolo_weights
from trainers.trainer import Trainer

GYMNASIUM = ("gymnasium==1.4.0", "cloudpickle==3.1.3", "farama-notifications==0.0.6")
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
        repository="huggingface/diffusers",
        commit="58eb52c0",
        folder="examples/unconditional_image_generation",
        source="https://github.com/huggingface/diffusers/tree/main/examples/unconditional_image_generation",
        data=(at(images, "examples/unconditional_image_generation/data", count=12),),
        python_path="src",
        remark="12 made pictures of 32 pixels, two inference steps",
    ),
]

"""Ultralytics' YOLO from its configuration file, on images of noise."""

import os
from pathlib import Path

import counters  # noqa: F401
import numpy
from PIL import Image
from ultralytics import YOLO

for part in ("train", "val"):
    images, labels = Path("data/images", part), Path("data/labels", part)
    images.mkdir(parents=True, exist_ok=True)
    labels.mkdir(parents=True, exist_ok=True)
    for place in range(8):
        Image.fromarray(numpy.random.randint(0, 255, (160, 160, 3), dtype=numpy.uint8)).save(images / f"{place}.jpg")
        (labels / f"{place}.txt").write_text("0 0.5 0.5 0.4 0.3\n1 0.3 0.4 0.2 0.2\n")
Path("data.yaml").write_text(f"path: {os.path.abspath('data')}\ntrain: images/train\nval: images/val\nnames: [one, two]\n")
# A relative project lies below a folder that Ultralytics remembers from its first run anywhere.
PROJECT = os.path.abspath("runs")
YOLO("yolo11n.yaml").train(data="data.yaml", epochs=2, imgsz=160, batch=4, workers=0, device=0, amp=False, plots=False, project=PROJECT)

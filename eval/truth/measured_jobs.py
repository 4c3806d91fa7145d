"""The jobs that eval/truth/measure_on_gpu.py and measure_training.py measured: their names, and how the virtual GPU repeats them."""

import gzip
import json
from pathlib import Path

TRAINING = Path(__file__).resolve().parent / "training_job.py"  # the program of each training, with the job as its argument
MEASURE = Path(__file__).resolve().parent / "measure_on_gpu.py"
STEPS = 3  # the steps of max_memory_reserved_3_steps_bytes
FACTORS = ("model", "batch", "precision", "optimizer")


def name_of(row):
    """The card, the settings of every job, and the switches of this one."""
    job = row["job"]
    switches = [key if value is True else value for key, value in job.items() if key not in FACTORS and value]
    return " ".join(map(str, [row["source"]["card"], *(job[factor] for factor in FACTORS), *switches]))


def job_of(row, python, gpu, cudnn):
    """The job as a line for `gpucast batch`."""
    command = [python, str(MEASURE), "--job", json.dumps(row["job"])]
    return {"name": name_of(row), "command": command, "gpu": gpu, "steps": STEPS, "cudnn": cudnn}


def trainings(path):
    """(Where the rows of measure_training.py are from, the rows that were measured to the end.)"""
    with gzip.open(path, "rt") as file:
        source, *rows = (json.loads(line) for line in file)
    return source, [row for row in rows if "error" not in row]

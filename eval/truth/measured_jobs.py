"""The jobs that eval/truth/measure_on_gpu.py measured: their names, and how the virtual GPU repeats them."""

import json
from pathlib import Path

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

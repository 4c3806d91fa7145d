#!/usr/bin/env python3
"""Peak memory of full fine-tuning on one and several A100 80 GB, compared with fms-acceleration's benchmark.

    python -m eval.ranks.fms --data DIR --python ENV/bin/python --python ENV45/bin/python --out OUT [--only 'Mistral.*x2'] [--page]

DIR has multi_gpu/runs_fms_acceleration.csv.gz. A row runs in the environment that has its transformers (scripts/benchmarks/refs/requirements*.txt there):

    ENV    torch 2.4.1, transformers 4.48.1, tokenizers 0.21.0, accelerate 1.0.1, trl 0.13.0, peft 0.13.2, datasets 2.21.0, numpy 1.26.4, pyarrow 19.0.0;
           fms-acceleration 0.6.1 and fms-acceleration-foak 0.6.0, both with --no-deps
    ENV45  torch 2.4.1, transformers 4.45.2, tokenizers 0.20.3, accelerate 1.0.1, trl 0.11.4, peft, datasets and numpy as above;
           fms-acceleration 0.5.0 and fms-acceleration-foak 0.4.0, both with --no-deps

scripts/train_fms.py is captured: the only rank, or rank 0 of the row's ranks, as the benchmark's figure is rank 0's. flash-attn has to be compiled
with CUDA's compiler; scripts/flash_attention_stand_in.py has PyTorch's build of the same kernels instead. OUT keeps a line for each row; what it has is
not run again. --page renews docs/results/fms.md.
"""

import argparse
import dataclasses
import json
import os
import re
import statistics
import sys
from pathlib import Path

from eval import ROOT, jobs, page
from eval.data_sets import read_csv

COMMAND = "python -m eval.ranks.fms --data DIR --python ENV/bin/python --python ENV45/bin/python --out OUT"
SCRIPTS = Path(__file__).parent / "scripts"


@dataclasses.dataclass(frozen=True)
class Model:
    config: dict
    vocabulary: int  # after the trainer has added its special tokens
    length: int = 4096


def models():
    ours = json.loads((ROOT / "python/api/gpucast/model/models.json").read_text())["models"]
    santacoder = {
        "model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_embd": 2048, "n_head": 16, "n_inner": 8192, "n_layer": 24,
        "n_positions": 2048, "activation_function": "gelu_pytorch_tanh", "multi_query": True, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
    }  # fmt: skip
    power = {
        "model_type": "granite", "architectures": ["GraniteForCausalLM"], "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 40,
        "num_attention_heads": 36, "num_key_value_heads": 36, "max_position_embeddings": 4096, "tie_word_embeddings": True, "attention_bias": True,
        "mlp_bias": True, "attention_dropout": 0.1, "embedding_multiplier": 12.0, "logits_scaling": 9.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.015625,
    }  # fmt: skip
    return {
        "bigcode/gpt_bigcode-santacoder": Model(santacoder, 49158, 2048),
        "mistralai/Mistral-7B-v0.1": Model(ours["mistralai/Mistral-7B-v0.1"]["config"], 32001),
        "ibm/PowerLM-3b": Model(power, 49152),
        "meta-llama/Meta-Llama-3-8B": Model(ours["meta-llama/Meta-Llama-3-8B"]["config"], 128258),
        "mistralai/Mixtral-8x7B-Instruct-v0.1": Model(ours["mistralai/Mixtral-8x7B-v0.1"]["config"], 32001),
        "NousResearch/Llama-2-70b-hf": Model(ours["meta-llama/Llama-2-70b-hf"]["config"], 32001),
    }


# sample-configurations/foak-fast-kernels*.yaml: the loss of each.
LOSSES = {"foak-fast-kernels": "true", "foak-fast-kernels-liger": "fused_ce_liger"}

# What `accelerate launch` sets with scripts/benchmarks/accelerate.yaml.
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "ACCELERATE_MIXED_PRECISION": "no",
    "FSDP_SHARDING_STRATEGY": "1",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_MIN_NUM_PARAMS": "100000000",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_BACKWARD_PREFETCH": "BACKWARD_PRE",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_USE_ORIG_PARAMS": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_SYNC_MODULE_STATES": "true",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
}


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    gpus: int
    batch: int  # sequences a GPU
    plugin: str
    bf16: bool  # autocast
    transformers: str
    peak: int | None  # bytes, rank 0; None: the run did not end, so there is no figure
    allocated: int | None  # at the end

    @property
    def name(self):
        return f"{self.model.split('/')[1]} x{self.gpus} b{self.batch} {self.plugin} {'autocast' if self.bf16 else 'bf16'}"


def rows_of(data):
    """(the rows, the number of rows left out: torch's memory was not read)."""
    found, left_out = [], 0
    for line in read_csv(data / "multi_gpu" / "runs_fms_acceleration.csv"):
        memory = [re.search(rf"{what} (\d+) B", line["notes"]) for what in ("peak torch allocated", "; allocated")]
        if line["step_s"] and not all(memory):
            left_out += 1
            continue
        found.append(
            Row(
                model=line["model"],
                gpus=int(line["gpus"]),
                batch=int(line["micro_batch"]),
                plugin=re.search(r"plugin (\S+)$", line["notes"]).group(1),
                bf16="autocast" in line["precision"],
                transformers=re.search(r"transformers (\S+)", line["release"]).group(1),
                peak=int(memory[0].group(1)) if memory[0] else None,
                allocated=int(memory[1].group(1)) if memory[1] else None,
            )
        )
    return found, left_out


def write_stand_in(folder):
    """A folder for PYTHONPATH that has the package flash_attn."""
    package, about = folder / "flash_attn", folder / "flash_attn-2.7.3.dist-info"
    for one in (package, about):
        one.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text((SCRIPTS / "flash_attention_stand_in.py").read_text())
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.7.3\n")
    return folder


def job_of(row, python, out):
    model = models()[row.model]
    config = out / f"{row.model.split('/')[1]}.json"
    config.write_text(json.dumps({**model.config, "vocab_size": model.vocabulary}))
    words = [python, str(SCRIPTS / "train_fms.py"), "--config", str(config), "--length", str(model.length), "--batch", str(row.batch)]
    words += ["--ranks", str(row.gpus), "--out", str(out / "trainer"), *(["--bf16"] if row.bf16 else [])]
    if row.plugin != "none":
        loss = LOSSES[row.plugin]
        plugins = out / f"{row.plugin}.yaml"
        kernels = f"fast_loss: {loss}, fast_rms_layernorm: true, fast_rope_embeddings: true"
        plugins.write_text(f"plugins: {{training: {{fused_ops_and_kernels: {{{kernels}}}}}}}\n")
        words += ["--plugins", str(plugins)]
    environment = {"PYTHONPATH": str(write_stand_in(out / "stand_in")), "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(out / "datasets")}
    several = {"world_size": row.gpus, "ranks": "0"} if row.gpus > 1 else {}
    if row.gpus > 1:
        environment |= FSDP
    log = out / "logs" / f"{row.name.replace(' ', '_')}.txt"
    log.parent.mkdir(exist_ok=True)
    full = {"enforce_capacity": True} if row.peak is None else {}  # ends where the card is full
    return {
        "name": row.name, "command": words, "gpu": "a100-80", "steps": "until-end", "environment": environment, "log": str(log), **several, **full,
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Answer:
    verdict: str  # fits, tight, does_not_fit
    peak: int | None = None  # by the script's probes
    allocated: int | None = None
    report_peak: int | None = None

    @property
    def fits(self):
        return self.verdict != "does_not_fit"


def answer_of(result, job):
    """None: it failed."""
    if jobs.out_of_memory(result) or result["status"] == "does_not_fit":
        return Answer("does_not_fit")
    if jobs.problem(result):
        print(f"{result['name']}: {jobs.problem(result)}", file=sys.stderr)
        return None
    printed = [line for line in Path(job["log"]).read_text().splitlines() if line.startswith('{"peak"')]
    return Answer(result["status"], **json.loads(printed[-1]), report_peak=result["report"]["peak"]["allocated_bytes"])


def error(ours, measured):
    return 100 * (ours / measured - 1)


def text_of(row, answer):
    if row.peak is None or not answer.fits:
        return f"{row.name:60} {'did not end' if row.peak is None else 'ended'}, gpucast: {answer.verdict}"
    words = f"{row.name:60} measured {row.peak:>14,} gpucast {answer.peak:>14,} {answer.peak - row.peak:+,} ({error(answer.peak, row.peak):+.4f} %)"
    return f"{words}; at the end {answer.allocated - row.allocated:+,}; report {answer.report_peak - row.peak:+,}"


def compared(pairs):
    """Those with two figures."""
    return [(row, answer) for row, answer in pairs if row.peak is not None and answer.fits]


def summary_of(name, pairs):
    """A line of the page's summary."""
    errors = sorted(abs(error(answer.peak, row.peak)) for row, answer in pairs)
    equal, near = sum(answer.peak == row.peak for row, answer in pairs), sum(one <= 1 for one in errors)
    at_the_end = sum(answer.allocated == row.allocated for row, answer in pairs)
    return f"| {name} | {len(pairs)} | {equal} | {statistics.median(errors):.4f} | {errors[-1]:.4f} | {near} | {at_the_end} |"


def summary(pairs):
    lines = [
        "| rows | n | equal to the byte | median error % | worst % | within 1 % | equal at the end |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines.append(summary_of("all", pairs))
    for gpus in sorted({row.gpus for row, _ in pairs}):
        lines.append(summary_of(f"{gpus} GPU{'s' if gpus > 1 else ''}", [one for one in pairs if one[0].gpus == gpus]))
    for model in dict.fromkeys(row.model for row, _ in pairs):
        lines.append(summary_of(model, [one for one in pairs if one[0].model == model]))
    return "\n".join(lines)


def verdicts(pairs):
    ended, stopped = [[answer.verdict for row, answer in pairs if (row.peak is None) == it] for it in (False, True)]
    fit = f"Of {len(ended)} runs that ended, {ended.count('fits')} fit by gpucast, and {ended.count('tight')} are tight"
    return f"{fit}; of {len(stopped)} that did not end, {stopped.count('does_not_fit')} run out of memory."


def table_of(pairs):
    lines = ["| model | GPUs | batch a GPU | plugin | weights | measured | gpucast |", "|---|---:|---:|---|---|---:|---|"]
    for row, answer in pairs:
        off = answer.peak - row.peak
        ours = f"{off:+,} ({error(answer.peak, row.peak):+.4f} %)" if off else "equal"
        weights = "fp32, autocast" if row.bf16 and row.gpus > 1 else "bf16, autocast" if row.bf16 else "bf16"
        lines.append(f"| {row.model.split('/')[1]} | {row.gpus} | {row.batch} | {row.plugin} | {weights} | {row.peak:,} | {ours} |")
    return "\n".join(lines)


def disagreements(pairs):
    found = [f"{row.name} ({answer.verdict})" for row, answer in pairs if answer.fits != (row.peak is not None)]
    return f"Otherwise: {', '.join(found)}." if found else "None is otherwise."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_fms_acceleration.csv.gz")
    parser.add_argument("--python", action="append", required=True, help="of an environment named above; once for each")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", default="", help="rows whose names match")
    parser.add_argument("--at-once", type=int, default=1, help="jobs at a time")
    parser.add_argument("--page", action="store_true", help="renew the page of results")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    environments = {jobs.versions(python)["transformers"]: os.path.abspath(python) for python in options.python}
    rows, left_out = rows_of(options.data)
    chosen = [row for row in rows if row.transformers in environments and re.search(options.only, row.name)]
    wanted = {row.name: job_of(row, environments[row.transformers], out) for row in chosen}
    results = jobs.run(options.gpucast, list(wanted.values()), out / "fms.jsonl", options.at_once)
    pairs = [(row, answer) for row in chosen if (answer := answer_of(results[row.name], wanted[row.name]))]
    for row, answer in pairs:
        print(text_of(row, answer))
    both = compared(pairs)
    if both:
        print(f"\n{summary(both)}\n")
    print(f"{verdicts(pairs)} {disagreements(pairs)}\n{len(rows) - len(pairs)} rows were not run, {left_out} have no figure of torch's")
    if options.page:
        words = f"{len(both)} peaks, {len(pairs)} verdicts"
        tables = {"summary": summary(both), "verdicts": f"{verdicts(pairs)} {disagreements(pairs)}", "rows": table_of(both)}
        page.write(ROOT / "docs/results/fms.md", COMMAND, words, tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())

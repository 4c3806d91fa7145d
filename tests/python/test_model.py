"""`gpucast model`: configs that are found or refused, scripts that are written; with transformers, what they need."""

import ast
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import ROOT
from gpucast import Error
from gpucast.model import estimate, kinds, table
from gpucast.model.configs import along, find_model
from gpucast.model.inference import Inference, inference_script, stages_of
from gpucast.model.script import Environment, Training, training_script

pytestmark = pytest.mark.once

PROGRAMS = ROOT / ".venv/programs/bin/python"  # has transformers, peft, bitsandbytes: make programs
V4, V5 = Environment((4, 48)), Environment((5, 24))
TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


def write_config(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**TINY, **changes}))
    return folder


# ---- models


def test_a_model_by_id_name_folder_and_file(tmp_path):
    folder = write_config(tmp_path / "own")
    by_folder, by_file = find_model(str(folder)), find_model(str(folder / "config.json"))
    assert by_folder.config == by_file.config
    assert by_folder.config["hidden_size"] == 256 and "torch_dtype" not in by_folder.config
    by_id, by_name = find_model("mistralai/Mistral-7B-v0.1"), find_model("mistral-7b-v0.1")
    assert by_id == by_name and by_id.name == "mistralai/Mistral-7B-v0.1" and by_id.config["hidden_size"] == 4096


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ('{"a": 1,}', "no JSON", ":1:"),
        ("[]", "names no model_type", ""),
        ('{"_class_name": "UNet2DConditionModel"}', "diffusers", ""),
    ],
)
def test_a_config_that_is_none(tmp_path, text, what, where):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Error) as error:
        find_model(str(tmp_path))
    assert what in error.value.what and str(tmp_path / "config.json") + where in error.value.where and error.value.to_do


def test_a_name_that_is_no_model(tmp_path):
    with pytest.raises(Error, match="did you mean mistralai/Mistral-7B"):
        find_model("Mistral-7b")
    with pytest.raises(Error, match=r"there is no config\.json"):
        find_model(str(tmp_path))


def test_the_models_that_come_along():
    models = along()
    assert len(models) >= 60
    for name, one in models.items():
        assert one["parameters"] > 1e7 and one["config"]["model_type"], name
    families = {one["config"]["model_type"] for one in models.values()}
    assert {"llama", "qwen3", "mistral", "gemma2", "phi3", "gpt_oss", "deepseek_v3", "olmo2", "bert", "vit", "whisper"} <= families


# ---- scripts


def trainings():
    for train in ("full", "lora", "qlora"):
        yield Training(train, checkpointing=True, optimizer="adafactor", attention="eager")
    for division in ("ddp", "fsdp", "zero3"):
        for precision in ("bf16", "bf16-mixed", "fp32"):
            yield Training(precision=precision, gpus=8, division=division, checkpointing=True)


@pytest.mark.parametrize("environment", [V4, V5], ids=["transformers 4", "transformers 5"])
def test_every_script_is_python(environment):
    model = find_model("Llama-3.1-8B")
    scripts = [training_script(model, kind, training, environment) for kind in kinds.KINDS for training in trainings()]
    scripts.append(inference_script(model, Inference(), environment))
    for text in scripts:
        tree = ast.parse(text)
        names = [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)]
        assert (
            {"CONFIG", "config", "model"} <= set(names) and "vocabulary" not in text.replace("vocabulary_size", "") and "DTYPE" not in text
        )
        (config,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "CONFIG"]
        assert ast.literal_eval(config) == model.config


def test_a_script_says_what_the_release_takes():
    model = find_model("gpt2")
    fsdp = Training(division="fsdp", gpus=4)
    assert "torch_dtype=torch.bfloat16" in training_script(model, kinds.NEXT_WORD, fsdp, V4)
    assert 'fsdp="full_shard auto_wrap"' in training_script(model, kinds.NEXT_WORD, fsdp, V4)
    assert "(config, dtype=torch.bfloat16)" in training_script(model, kinds.NEXT_WORD, fsdp, V5)
    assert "fsdp=True" in training_script(model, kinds.NEXT_WORD, fsdp, V5)


def test_lengths_follow_the_config():
    gpt2, roberta, t5, vit = map(find_model, ("gpt2", "roberta-base", "t5-small", "vit-base-patch16-224"))
    kind = {kind.name: kind for kind in kinds.KINDS}
    assert [kinds.default_length(gpt2, kinds.NEXT_WORD), kinds.default_length(roberta, kind["masked words"])] == [1024, 512]
    assert kinds.default_length(find_model("Llama-3.1-8B"), kinds.NEXT_WORD) == 2048
    assert kinds.default_length(vit, kind["image classes"]) == 224
    kinds.check_length(t5, kind["seq2seq"], 4096)  # relative positions
    with pytest.raises(Error, match="at most 1,024 tokens"):
        kinds.check_length(gpt2, kinds.NEXT_WORD, 1025)


def test_stages_are_read_from_what_the_script_prints():
    assert stages_of("noise\nweights_bytes=12\nprefill_peak_bytes=30\nother_bytes=1\n") == {"weights_bytes": 12, "prefill_peak_bytes": 30}


def test_cells_of_the_table():
    card = {"status": "tight", "request_bytes": 3 << 30, "step_ns": 1.5e9}
    assert table._cell(card, False) == "~ 3.00   1.50 s" and table._cell(card, True) == "~ 3.00" and table._cell(None, False) == "-"
    assert table._cell({**card, "status": "does_not_fit"}, False).rstrip() == "x 3.00"


# ---- the command


def model(gpucast_bin, *words, python=sys.executable, **more):
    return subprocess.run([gpucast_bin, "model", *words, "--python", str(python)], capture_output=True, text=True, **more)


def test_options_that_contradict(gpucast_bin):
    for words, what in (
        ((), "no model is named"),
        (("gpt2", "--gpus", "4"), "add one of --ddp, --fsdp, --zero3"),
        (("gpt2", "--fsdp"), "say how many: --gpus 8"),
        (("gpt2", "--gpus", "2", "--ddp", "--fsdp"), "choose one of them"),
    ):
        done = model(gpucast_bin, *words)
        assert done.returncode == 2 and what in done.stderr and "Traceback" not in done.stderr


def test_the_list(gpucast_bin):
    done = model(gpucast_bin, "--list", "--format", "json")
    assert [one["id"] for one in json.loads(done.stdout)["models"]] == list(along())


# ---- with transformers: make test-slow


@pytest.fixture(scope="module")
def programs():
    if not PROGRAMS.exists():
        pytest.skip("needs transformers: make programs")
    return str(PROGRAMS)


BY_HAND = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.set_default_dtype(torch.bfloat16)
model = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000))
torch.set_default_dtype(torch.float32)
data = [{"input_ids": list(range(128)), "attention_mask": [1] * 128, "labels": list(range(128))}] * 64
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4, max_steps=3, report_to=[], save_strategy="no"), train_dataset=data).train()
"""


@pytest.mark.slow
def test_equal_to_the_training_by_hand(gpucast_bin, programs, tmp_path):
    folder = write_config(tmp_path / "tiny")
    (tmp_path / "hand.py").write_text(BY_HAND)
    words = ["--gpu", "rtx3060", "--format", "json"]
    done = model(gpucast_bin, str(folder), "--batch", "4", "--seq", "128", "--write", "train.py", *words, python=programs, cwd=tmp_path)
    hand = subprocess.run([gpucast_bin, "run", *words, "--", programs, "hand.py"], capture_output=True, text=True, cwd=tmp_path)
    answer = json.loads(done.stdout)
    peaks = [
        {name: one["peak"][name] for name in ("allocated_bytes", "reserved_bytes")} for one in (answer["report"], json.loads(hand.stdout))
    ]
    assert peaks[0] == peaks[1]
    assert (tmp_path / "train.py").read_text() == answer["script"]
    assert {path.name for path in tmp_path.iterdir()} - {"out"} == {"hand.py", "tiny", "train.py"}  # out: of the script by hand
    # Two embeddings, two layers of attention, MLP and norms, and the last norm.
    parameters = 2 * 1000 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256
    assert answer["model"]["parameters"] == parameters and answer["accelerate"]["float32"]["weights_bytes"] > 4e6
    again = model(gpucast_bin, str(folder), "--write", "train.py", python=programs, cwd=tmp_path)
    assert again.returncode == 2 and "exists already" in again.stderr


@pytest.mark.slow
def test_inference_and_its_table(gpucast_bin, programs, tmp_path):
    folder = write_config(tmp_path / "tiny")
    words = ("--inference", "--batch", "2", "--seq", "64", "--new-tokens", "8", "--format", "json")
    stages = json.loads(model(gpucast_bin, str(folder), *words, python=programs).stdout)["stages"]
    assert stages["kv_cache_bytes"] == 2 * 2 * 2 * (64 + 8) * 256 * 2  # keys and values, layers, batch, tokens, width, bf16
    assert stages["weights_bytes"] >= 1_823_488 * 2 and stages["prefill_peak_bytes"] > stages["weights_bytes"]
    rows = model(
        gpucast_bin, str(folder), "--table", "--inference", "--batches", "1,2", "--lengths", "64", "--gpu", "rtx3060", python=programs
    )
    lines = [line.split() for line in rows.stdout.splitlines()]
    assert [line[:2] for line in lines if line and line[0] == "64"] == [["64", "1"], ["64", "2"]]


@pytest.mark.slow
def test_code_of_a_repository_is_not_run(gpucast_bin, programs, tmp_path):
    (write_config(tmp_path / "own", model_type="mine", auto_map={"AutoConfig": "code.Mine"}) / "code.py").write_text("open('ran', 'w')")
    done = model(gpucast_bin, "own", python=programs, cwd=tmp_path)
    assert done.returncode == 2 and "--trust-remote-code" in done.stderr and not (tmp_path / "ran").exists()
    write_config(tmp_path / "unknown", model_type="mine")
    done = model(gpucast_bin, "unknown", python=programs, cwd=tmp_path)
    assert done.returncode == 2 and "does not know the architecture 'mine'" in done.stderr
    # No network here, or no such repository: one line either way.
    done = model(
        gpucast_bin, "no-such-owner-gpucast/none", python=programs, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 2 and done.stderr.startswith("gpucast: the hub cannot be reached") and "Traceback" not in done.stderr


class Hub(BaseHTTPRequestHandler):
    """What the hub answers for three repositories: one with a config, one that is gated, one without a config."""

    config = json.dumps(TINY).encode()

    def do_GET(self):
        owner = self.path.split("/")[1]
        code, error = {"gated": (403, "GatedRepo"), "empty": (404, "EntryNotFound"), "open": (200, "")}.get(owner, (401, "RepoNotFound"))
        self.send_response(code)
        if error:
            self.send_header("X-Error-Code", error)
        body = b"" if error else self.config
        for header, value in {"X-Repo-Commit": "0" * 40, "ETag": '"1"', "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *words):
        pass


@pytest.mark.slow
def test_what_the_hub_refuses(gpucast_bin, programs, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}

    def asked(name):
        return model(gpucast_bin, name, "--gpu", "rtx3060", "--batch", "1", "--seq", "32", python=programs, cwd=tmp_path, env=hub)

    refused = {name: asked(name) for name in ("gated/model", "empty/model", "none/model")}
    expected = {"gated/model": "gated", "empty/model": "no config.json", "none/model": "no such repository"}
    for name, words in expected.items():
        assert refused[name].returncode == 2 and words in refused[name].stderr and len(refused[name].stderr.splitlines()) <= 4
    found = asked("open/model")
    assert found.returncode == 0 and "FITS" in found.stdout, found.stderr
    server.shutdown()


COUNT = """
import json, sys, torch, transformers
from transformers import AutoConfig
for name, one in json.load(open(sys.argv[1]))["models"].items():
    with torch.device("meta"):
        model = getattr(transformers, one["config"]["architectures"][0])(AutoConfig.for_model(**one["config"]))
    if sum(one.numel() for one in model.parameters()) != one["parameters"]:
        print(name)
"""


@pytest.mark.slow
def test_configs_give_the_published_numbers_of_parameters(programs):
    done = subprocess.run([programs, "-c", COUNT, str(Path(estimate.__file__).with_name("models.json"))], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]

"""tools/calibrate.py: its calls on the virtual GPU (times there mean nothing), and from known times back to their constants."""

import argparse
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from eval.operations.fit import MODEL_ALONE

pytestmark = pytest.mark.once

SCRIPT = Path(__file__).resolve().parent.parent.parent / "tools" / "calibrate.py"
_spec = importlib.util.spec_from_file_location("calibrate_card", SCRIPT)
calibrate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(calibrate)

once = pytest.mark.once


@pytest.fixture(scope="session")
def command(gpucast_bin):
    return calibrate.Gpucast(gpucast_bin)


@pytest.fixture
def script(gpucast_bin):
    def run(*words, environment=None):
        words = [sys.executable, str(SCRIPT), "--gpucast", gpucast_bin, *map(str, words)]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)

    return run


def card_of(command, id_):
    return next(card for card in command.cards() if card["id"] == id_)


def measured_like(command, id_, constants=None):
    """What --measure would write on a card of these constants."""
    card = card_of(command, id_)
    precisions = [p for p in ("fp32", "tf32", "fp16", "bf16", "fp8") if p in card["peak_flop_per_s"]]
    planned = calibrate.plan(precisions, card["l2_bytes"], card["total_memory_bytes"] * 9 // 10)
    # Without corrections, as with any file that gives a card its rates.
    file = {**MODEL_ALONE, **({"cards": {id_: calibrate.layer_of(constants, "planted")}} if constants else {})}
    times = command.expected_ns(id_, [operation for operation, _ in planned], file)
    return {
        "schema_version": 1,
        "device": {key: card[key] for key in ("name", "multiprocessors", "total_memory_bytes")},
        "torch": "2.6.0",
        "cuda": "12.4",
        "date": "2026-01-31",
        "nvidia_smi_after": {"driver_version": "570.1", "power.limit": "300.00 W"},
        "rows": [{"operation": operation, "tells": tells, "ns": ns} for (operation, tells), ns in zip(planned, times)],
    }


def numbers(layer, prefix=""):
    found = {}
    for name, value in layer.items():
        found.update(numbers(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return {name: value for name, value in found.items() if not name.endswith("source")}


def accepted(gpucast_bin, constants, card, tmp_path):
    """What `gpucast time` expects with this file: it reads it without a word."""
    (tmp_path / "list.jsonl").write_text('{"kind": "gemm", "gemm": {"m": 512, "n": 512, "k": 512}}\n{"kind": "copy", "bytes_read": 4096}\n')
    words = [gpucast_bin, "time", "--operations", str(tmp_path / "list.jsonl"), "--gpu", card, "--constants", str(constants)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["expected_ns"] for line in done.stdout.splitlines()]


def test_every_call_on_the_virtual_gpu(gpucast, gpucast_bin, command, script, tmp_path):
    run = gpucast("", "--gpu", "l40s", command=[sys.executable, str(SCRIPT), "--quick", "--measure", "rows.json"])
    file = gpucast.job / "rows.json"
    assert file.exists(), run.err
    measured = calibrate.read_measured(file)
    assert measured["device"]["name"] == "NVIDIA L40S"
    assert all(math.isfinite(row["ns"]) and row["ns"] > 0 for row in measured["rows"])
    l2 = [row for row in measured["rows"] if row["tells"] == "l2"]
    expected = calibrate.plan(["fp32", "tf32", "fp16", "bf16", "fp8"], 1 << 20 if l2 else 0, 1 << 34, quick=True)
    assert [row["tells"] for row in measured["rows"]] == [tells for _, tells in expected], "each call of this release works\n" + run.err
    # The virtual GPU computes nothing, so its times are no card's: that is noticed.
    refused = script("--fit", file, "--out", tmp_path / "constants.json")
    assert refused.returncode == 2
    assert "Nothing was written" in refused.stderr
    assert not (tmp_path / "constants.json").exists()
    # With the times of a card: a file that `gpucast time` takes, as it is.
    measured["rows"] = measured_like(command, "l40s", {"rates.dram_fraction": 0.6})["rows"]
    file.write_text(json.dumps(measured))
    done = script("--fit", file, "--out", tmp_path / "constants.json")
    assert done.returncode == 0, done.stderr
    assert all(math.isfinite(ns) and ns > 0 for ns in accepted(gpucast_bin, tmp_path / "constants.json", "l40s", tmp_path))


PLANTED = {
    "rates.dram_fraction": 0.7,
    "rates.link_bytes_per_s": 20e9,
    "rates.l2_bytes_per_clock": 20.0,
    "rates.fp32_fraction": 0.6,
    "rates.fp16_fraction": 0.75,
    "rates.fp32_flop_per_joule": 1e14,  # no limit of watts
    "rates.fp16_flop_per_joule": 1e14,
    "attention.fp16.efficiency": 0.8,
    "attention.fp16.backward_efficiency": 0.6,
    "convolution.fp16.forward_efficiency": 0.7,
    "convolution.fp16.weight_gradient_efficiency": 0.9,
    "convolution.fp32.data_gradient_efficiency": 0.8,
}


@once
@pytest.mark.parametrize("id_", ["h200", "rtx3090", "v100-16", "t4"])
def test_planted_constants_are_found(command, id_):
    card, layer, lines = calibrate.fit(measured_like(command, id_, PLANTED), command)
    assert card == id_
    found = numbers(layer)
    for name, value in PLANTED.items():
        if not name.endswith("joule"):
            assert found[name] == pytest.approx(value, rel=0.01), name
    assert all(math.isfinite(value) and value > 0 for value in found.values())
    assert found["rates.fp16_flop_per_joule"] * card_of(command, id_)["power_w"] >= card_of(command, id_)["peak_flop_per_s"]["fp16"]
    assert "570.1" in layer["rates"]["source"]
    assert "2026-01-31" in layer["rates"]["source"]
    after = [float(line.split()[-2]) for line in lines[1:]]
    assert max(after) < 1


@once
def test_one_bad_time_of_four_changes_little(command):
    measured = measured_like(command, "a100-80", PLANTED)
    row = next(row for row in measured["rows"] if row["tells"] == "rates.fp16_fraction")
    row["ns"] *= 3  # something else used the card just then
    assert numbers(calibrate.fit(measured, command)[1])["rates.fp16_fraction"] == pytest.approx(0.75, rel=0.02)


@once
def test_products_that_no_rate_explains_are_left_out(command, capsys):
    measured = measured_like(command, "p4")
    products = [row for row in measured["rows"] if row["tells"] == "rates.fp32_fraction"]
    for row, slower in zip(products, (2.6, 2.9, 1.35, 3.7)):  # a card of 75 W, as NeuSight's P4
        row["ns"] *= slower
    found = numbers(calibrate.fit(measured, command)[1])
    assert "rates.fp32_fraction" not in found and "rates.dram_fraction" in found
    assert "left out: rates.fp32_fraction (no one rate explains its operations" in capsys.readouterr().err


@once
def test_what_the_rows_do_not_tell_is_left_out(command, capsys):
    measured = measured_like(command, "a100-80")
    told = "convolution.fp16.forward_efficiency"
    for row in measured["rows"]:
        if row["tells"] == told:
            row["ns"] = 1000  # less than any convolution takes
    found = numbers(calibrate.fit(measured, command)[1])
    assert told not in found
    assert "convolution.fp16.data_gradient_efficiency" in found
    assert f"left out: {told}" in capsys.readouterr().err
    # A copy determines no rate of products.
    measured["rows"] = [row for row in measured["rows"] if row["tells"] == "rates.dram_fraction"]
    measured["rows"].append({**measured["rows"][0], "tells": "rates.fp16_fraction"})
    assert set(numbers(calibrate.fit(measured, command)[1])) == {"rates.dram_fraction"}


@once
def test_nothing_plausible_writes_nothing(command):
    measured = measured_like(command, "a100-80")
    for row in measured["rows"]:
        row["ns"] *= 30
    with pytest.raises(calibrate.Refused, match="something else"):
        calibrate.fit(measured, command)


@once
def test_rates_without_a_formula_are_on_paper():
    card = {"multiprocessors": 100, "clock_khz": 1_000_000}

    def row(read, written, ns, tells):
        return {"operation": calibrate.moved("elementwise", read, written), "ns": ns, "tells": tells}

    rows = [
        row(24_000_000, 24_000_000, 1e6, "link"),
        row(24_000_000, 24_000_000, 2e6, "link"),
        row(4, 4, 1800.0, "launch"),
        row(500_000, 500_000, 3000.0, "l2"),
        row(2_000_000, 2_000_000, 5000.0, "l2"),
    ]
    # 48 MB in 3 ms. 3 MB more in 2 us: 1500 bytes a ns, of 100 multiprocessors at 1 GHz.
    assert calibrate.direct(rows, card) == {
        "rates.link_bytes_per_s": pytest.approx(16e9),
        "rates.launch_ns": 1800.0,
        "rates.l2_bytes_per_clock": pytest.approx(15),
    }


@once
@pytest.mark.parametrize(("told", "what"), [("rates.fp16_fraction", "gemm fp16"), ("rates.dram_fraction", "bytes/s")])
def test_faster_than_the_datasheet_is_refused(command, script, tmp_path, told, what):
    measured = measured_like(command, "a100-80")
    for row in measured["rows"]:
        if row["tells"] == told:
            row["ns"] /= 3
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(measured))
    done = script("--fit", file, "--out", tmp_path / "constants.json")
    assert done.returncode == 2
    assert "1.3 times the datasheet of 'a100-80'" in done.stderr
    assert what in done.stderr
    assert not (tmp_path / "constants.json").exists()


@once
def test_another_card_than_it_says_is_refused(command):
    measured = measured_like(command, "a100-80")
    with pytest.raises(calibrate.Refused, match="108 multiprocessors, gpucast's 'h200' has 132"):
        calibrate.fit(measured, command, "h200")
    with pytest.raises(calibrate.Refused, match="no card 'h1000'"):
        calibrate.fit(measured, command, "h1000")
    measured["device"]["name"] = "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    with pytest.raises(calibrate.Refused, match="--gpu"):
        calibrate.fit(measured, command)


@once
def test_files(command, script, tmp_path, gpucast_bin):
    rows, out = tmp_path / "rows.json", tmp_path / "config" / "gpucast" / "constants.json"
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin"}

    def fit(id_, *words):
        rows.write_text(json.dumps(measured_like(command, id_)))
        return script("--fit", rows, *words, environment=environment)

    assert fit("a100-80").returncode == 0
    assert fit("t4").returncode == 0, "another card goes into the same file"
    assert set(json.loads(out.read_text())["cards"]) == {"a100-80", "t4"}
    before = out.read_text()
    again = fit("t4")
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert out.read_text() == before
    assert fit("t4", "--force").returncode == 0
    accepted(gpucast_bin, out, "t4", tmp_path)
    accepted(gpucast_bin, out, "a100-80", tmp_path)
    for text in ("{", "[]", '{"schema_version": 2}'):
        out.write_text(text)
        assert fit("t4").returncode == 2
        assert out.read_text() == text, "what is not understood is not replaced"
        assert script("--fit", out).returncode == 2
    rows.write_text(json.dumps({**measured_like(command, "t4"), "rows": [{"ns": 4}]}))
    assert "--measure" in script("--fit", rows, "--out", tmp_path / "x.json").stderr
    measured = measured_like(command, "t4")
    measured["rows"][0]["ns"] = float("nan")
    rows.write_text(json.dumps(measured))
    assert "nan ns" in script("--fit", rows, "--out", tmp_path / "x.json").stderr
    assert not (tmp_path / "x.json").exists()


@once
@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("raise ImportError('no torch here')", "PyTorch cannot be imported (no torch here)"),
        ("class cuda:\n    is_available = lambda: False\nclass version:\n    hip = None\n__version__ = '2.6.0'", "finds no NVIDIA card"),
    ],
)
def test_without_a_card_it_says_so(script, tmp_path, torch, says):
    (tmp_path / "torch.py").write_text(torch)
    done = script("--measure", tmp_path / "rows.json", environment={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"})
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "rows.json").exists()


@once
def test_without_the_command_it_says_so_first(tmp_path):
    words = [sys.executable, str(SCRIPT), "--gpucast", "no-such-gpucast", "--out", str(tmp_path / "x.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no-such-gpucast" in done.stderr
    assert "--measure" in done.stderr


# ---- nccl-tests ---------------------------------------------------------------------------------------------------------------------


def nccl_log(times_us, nodes=1, ranks=8, program="all_reduce", card="NVIDIA H100 80GB HBM3", wrong="0"):
    """What nccl-tests prints, for {bytes: microseconds}."""
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
        f"# Collective test starting: {program}_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        where = f"node{rank * nodes // ranks}"
        lines.append(f"#  Rank {rank:2} Group  0 Pid {900 + rank:6} on {where:>10} device {rank % 8:2} [0000:1{rank % 8}:00] {card}")
    lines.append("#                                                              out-of-place                       in-place")
    lines.append("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
    lines.append("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)")
    for size, us in times_us.items():
        rates = f"{size / us / 1e3:7.2f} {2 * size / us / 1e3:7.2f} {wrong:>6}"
        lines.append(f"{size:12} {size // 4:12}     float     sum      -1 {us:8.5g} {rates} {us:8.5g} {rates}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 70.742", "#"]) + "\n"


class TwoRates:
    """A command whose times follow from the machine's file alone."""

    ENTRY = {"id": "dgx-h100", "card_bytes_per_s": 450e9, "network_cards": 8, "network_card_bytes_per_s": 50e9, "network_hop_ns": None}

    def run(self, *words):
        if words[1] == "--show":
            return json.dumps(self.ENTRY)
        return json.dumps({"machines": [{"id": "aws-p5", "usual_for": []}, {"id": "dgx-h100", "usual_for": ["h100-80"]}]})

    def cards(self):
        return [{"id": "h100-80", "name": "NVIDIA H100 80GB HBM3"}, {"id": "h200", "name": "NVIDIA H200"}]

    def ns(self, shape, machine):
        entry = {**self.ENTRY, **machine}
        sent = 2 * (shape["ranks"] - 1) / shape["ranks"] * shape["bytes"]
        if shape["nodes"] == 1:
            return 12e3 + 1e9 * sent / (0.8 * entry["card_bytes_per_s"])
        return 20e3 + 4 * (entry["network_hop_ns"] or 5e3) + 1e9 * sent / (0.9 * 8 * entry["network_card_bytes_per_s"])

    def expected_ns(self, card, operations, constants=None, machine=None):
        assert card == "h100-80"
        return [self.ns(operation["collective"], machine) for operation in operations]


def options_for(tmp_path, *logs, **more):
    paths = []
    for number, text in enumerate(logs):
        paths.append(str(tmp_path / f"nccl{number}.log"))
        Path(paths[-1]).write_text(text)
    return argparse.Namespace(nccl_tests=paths, gpu=None, machine=None, out="node.json", **more)


def times_us(machine, nodes=1, ranks=8):
    sizes = [1 << power for power in range(3, 34)]
    return {size: TwoRates().ns({"ranks": ranks, "nodes": nodes, "bytes": size}, machine) / 1e3 for size in sizes}


def test_a_log_gives_the_links_it_was_measured_on(tmp_path):
    true = {"card_bytes_per_s": 390e9, "network_card_bytes_per_s": 21e9, "network_hop_ns": 30e3}
    logs = nccl_log(times_us(true)), nccl_log(times_us(true, 2, 16), nodes=2, ranks=16)
    machine, lines = calibrate.calibrate_links(options_for(tmp_path, *logs), TwoRates())
    assert machine["like"] == "dgx-h100"
    for field, value in true.items():
        assert machine[field] == pytest.approx(value, rel=0.01), field
    assert machine["sources"] == [
        "card_bytes_per_s, network_card_bytes_per_s, network_hop_ns: tools/calibrate.py --nccl-tests nccl0.log, nccl1.log "
        "(NVIDIA H100 80GB HBM3)"
    ]
    assert lines[0].split() == ["expected", "against", "measured,", "median", "error", "before", "after"]
    after = {line.rsplit("(", 1)[0].strip(): float(line.split()[-2]) for line in lines[1:-1]}
    assert after.keys() == {f"all_reduce, {nodes}, {part}" for nodes in ("1 node", "2 nodes") for part in ("small", "medium", "large")}
    assert max(after.values()) < 1


def test_one_node_alone_leaves_the_network(tmp_path):
    text = nccl_log(times_us({"card_bytes_per_s": 390e9}))
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in text.splitlines())
    for log in text, tagged, text.replace("#wrong", "error").replace("      0 ", "  2e-07 "):
        machine, _ = calibrate.calibrate_links(options_for(tmp_path, log), TwoRates())
        assert machine.keys() == {"like", "card_bytes_per_s", "sources"}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("epoch 1: loss 0.3\n", "is no output of nccl-tests: it has no row of sizes and times"),
        (nccl_log({8: 10.0, 64 << 20: 400.0}, wrong="7"), "line 17: nccl-tests counts '7' wrong results, so the times mean nothing"),
        (nccl_log({8: 10.0}), "the rows of one node end below 64 MiB"),
        (nccl_log({8: 10.0}, program="hypercube"), "does not name its program, or another than these: all_reduce_perf"),
        (nccl_log({64 << 20: 10.0}, card="NVIDIA H900"), "gpucast's table has no card 'NVIDIA H900': choose its entry"),
        (nccl_log({64 << 20: 10.0}, nodes=3), "the nodes have different numbers of ranks: {'node0': 3, 'node1': 3, 'node2': 2}"),
        (nccl_log({64 << 20: 10.0}).replace("      10 ", "      -1 "), "the time is '-1', not a number of microseconds above 0"),
        (nccl_log({64 << 20: 10.0}).replace("#  Rank", "# rank"), "does not name the ranks' cards"),
        (nccl_log({64 << 20: 0.1}), "no value of card_bytes_per_s from 2.25e+10 to 9e+12 explains the log"),
    ],
)
def test_logs_that_say_nothing(tmp_path, log, message):
    with pytest.raises(calibrate.Refused) as refused:
        calibrate.calibrate_links(options_for(tmp_path, log), TwoRates())
    assert message in str(refused.value)


def test_a_log_with_the_command(script, tmp_path):
    log, out = tmp_path / "nccl.log", tmp_path / "node.json"
    log.write_text("nothing")
    done = script("--nccl-tests", log, "--out", out)
    assert done.returncode == 2 and f"{log} is no output of nccl-tests" in done.stderr and not out.exists()
    assert "name the file to write with --out" in script("--nccl-tests", log).stderr
    assert "--machine is for --nccl-tests" in script("--machine", "dgx-h100").stderr


def test_predicted_times_give_back_their_machine(command, tmp_path):
    true = {"like": "aws-p5", "card_bytes_per_s": 400e9, "network_card_bytes_per_s": 4e9, "network_hop_ns": 40e3}
    logs = []
    for nodes in (1, 2):
        shapes = [{"kind": "all_reduce", "ranks": 8 * nodes, "nodes": nodes, "bytes": 1 << power} for power in range(10, 34)]
        times = command.expected_ns("h100-80", [{"kind": "collective", "collective": shape} for shape in shapes], machine=true)
        logs.append(nccl_log({shape["bytes"]: ns / 1e3 for shape, ns in zip(shapes, times)}, nodes, 8 * nodes))
    options = options_for(tmp_path, *logs)
    options.machine = "aws-p5"
    machine, _ = calibrate.calibrate_links(options, command)
    for field in ("card_bytes_per_s", "network_card_bytes_per_s", "network_hop_ns"):
        assert machine[field] == pytest.approx(true[field], rel=0.03), field

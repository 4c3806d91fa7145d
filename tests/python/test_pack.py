"""`gpucast pack` as a command: tables of any size, its page, the jobs of a plan packed again."""

import json
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

TABLE = "name,memory_gib,occupancy,nvml_utilization,dram,step_ms,steps,arrival_s,cards\n" + "".join(
    f"job {i},{1 + i % 9},0.{1 + i % 7},0.{2 + i % 8},0.{i % 9},{50 + 37 * i % 400},{100 + i % 900},{i % 60},{2 if i % 11 == 0 else 1}\n"
    for i in range(200)
)


def pack(gpucast_bin, *words, text=TABLE):
    done = subprocess.run([gpucast_bin, "pack", *words], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_jobs_of_a_plan_are_a_table(gpucast_bin):
    first = json.loads(pack(gpucast_bin, "-", "--gpus", "4xp40,a100-80", "--format", "json"))
    table = "".join(
        json.dumps({"arrival_ns": j["arrival_ns"], "cards": len(j["cards"]), **{k: j[k] for k in ("name", "steps", "on")}}) + "\n"
        for j in first["jobs"]
    )
    again = json.loads(pack(gpucast_bin, "-", "--gpus", "4xp40,a100-80", "--format", "json", text=table))
    assert first["finished"] == 200
    assert first == again


def test_policies_on_one_queue(gpucast_bin):
    plans = {}
    for policy in "slot", "nvml", "occupancy", "memory", "gpucast":
        plans[policy] = json.loads(
            pack(gpucast_bin, "-", "--gpus", "4xp40", "--policy", policy, "--mode", "timeslice", "--fair", "--format", "json")
        )
        assert plans[policy]["finished"] == 200
    assert plans["gpucast"]["makespan_ns"] < plans["slot"]["makespan_ns"]
    assert plans["memory"]["out_of_memory"]["runs"] == plans["gpucast"]["out_of_memory"]["runs"] == 0
    assert plans["occupancy"]["out_of_memory"]["runs"] > 0
    for card in plans["gpucast"]["cards"]:
        assert card["most_bytes"] <= 24032313344


def test_page_stands_alone(gpucast_bin, tmp_path):
    page = tmp_path / "plan.html"
    text = TABLE.replace("job 7,", '"<script>alert(1)</script>&",')
    pack(gpucast_bin, "-", "--gpus", "4xp40", "--format", "html", "-o", str(page), text=text)
    html = page.read_text()
    assert "<script" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in html
    assert not re.search(r"(src|href)=|url\(|@import|https?:", html)
    assert "prefers-color-scheme: dark" in html
    drawn = html.count('<rect class="job')
    assert drawn == sum(2 if i % 11 == 0 else 1 for i in range(200))
    # No bar is outside of its picture.
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', html).group(1))
    for x, bar in re.findall(r'<rect class="job[^>]* x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html):
        assert float(x) >= 0 and float(x) + float(bar) <= width


def test_many_jobs_take_the_memory_of_jobs(gpucast_bin, tmp_path):
    """A table ten times as long takes ten times the memory of its jobs, and nothing for its text."""

    def peak_kib(count):
        table = tmp_path / f"{count}.csv"
        # Comments take place in the file and none in the jobs.
        table.write_text("name,memory_gib,step_ms,arrival_s\n" + "".join(f"{' ' * 400}\nj,1,1,{i}\n" for i in range(count)))
        script = "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        done = subprocess.run(
            [sys.executable, "-c", script, gpucast_bin, "pack", str(table), "--gpus", "p40", "--policy", "slot"],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    few, many = peak_kib(1_000), peak_kib(51_000)
    assert (many - few) * 1024 / 50_000 < 1200


@pytest.mark.parametrize(
    "words, message",
    [
        (["--gpus", ""], "name is missing"),
        (["--gpus", "0xp40"], "1 to 1000000 cards"),
        (["--gpus", "p40", "--mode", "mpss"], "did you mean mps?"),
    ],
)
def test_bad_options(gpucast_bin, words, message):
    done = subprocess.run([gpucast_bin, "pack", "-", *words], input=TABLE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr

"""`gpucast pack` as a command: tables of any size, its page, the jobs of a plan packed again."""

import ast
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


# ---- requests for schedulers ------------------------------------------------------------------------------------------------------------

JOBS = [
    {"name": "ResNet 50!", "memory_gib": 6.5, "step_ms": 200, "steps": 100, "nvml_utilization": 0.4, "occupancy": 0.3, "command": ["a b", "'x'", "$y"]},
    {"name": "resnet-50", "memory_gib": 0.5, "step_ms": 100, "steps": 100, "nvml_utilization": 0.3, "occupancy": 0.2, "command": "echo 'two words'"},
    {"name": "", "memory_gib": 17, "step_ms": 100, "steps": 100, "command": ["true"]},
    {"name": "gang", "memory_gib": 10, "step_ms": 100, "steps": 100, "cards": 2, "command": ["true"]},
]  # fmt: skip


def manifest(gpucast_bin, scheduler, *words, jobs=JOBS, gpus="2xp40"):
    text = "".join(json.dumps(job) + "\n" for job in jobs)
    return pack(gpucast_bin, "-", "--gpus", gpus, "--to", scheduler, "--image", "train:1", *words, text=text)


def pods(gpucast_bin, scheduler, *words, gpus="2xp40"):
    items = json.loads(manifest(gpucast_bin, scheduler, *words, gpus=gpus))["items"]
    return {item["metadata"]["name"]: item["spec"]["template"] for item in items if item["kind"] == "Job"}


def limits(pod):
    return pod["spec"]["containers"][0].get("resources", {}).get("limits", {})


def test_kubernetes_requests(gpucast_bin):
    plain = pods(gpucast_bin, "kubernetes", "--policy", "slot")
    assert list(plain) == ["resnet-50", "resnet-50-2", "line-3", "gang"]
    assert [limits(pod) for pod in plain.values()] == [{"nvidia.com/gpu": n} for n in ("1", "1", "1", "2")]
    assert plain["gang"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "Tesla-P40"}
    assert plain["resnet-50"]["spec"]["containers"][0]["command"] == ["a b", "'x'", "$y"]
    # Under MPS each of three has a third of the memory: 7.5 GiB, and 10 or 17 do not fit into it.
    items = json.loads(manifest(gpucast_bin, "kubernetes", "--policy", "memory"))["items"]
    most = int(re.search(r"replicas: (\d+)", items[0]["data"]["p40"]).group(1))
    for item in items[1:]:
        gib = int(item["metadata"]["annotations"]["gpucast/request-bytes"]) / 2**30
        shares = item["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"].endswith("-SHARED")
        assert shares == (most > 1 and gib <= 22.38 / most and item["metadata"]["name"] != "gang")
    assert pods(gpucast_bin, "hami")["resnet-50"]["metadata"]["annotations"] == {"nvidia.com/use-gputype": "P40"}
    assert limits(pods(gpucast_bin, "hami")["resnet-50"]) == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "6656"}
    assert "nvidia.com/gpucores" in limits(pods(gpucast_bin, "hami", "--mode", "mps-limits")["resnet-50"])
    assert limits(pods(gpucast_bin, "volcano")["gang"]) == {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "10240"}
    kai = pods(gpucast_bin, "kai", "--queue", "team")
    assert kai["gang"]["metadata"]["annotations"] == {"gpu-fraction": "0.45", "gpu-fraction-num-devices": "2"}
    assert kai["gang"]["metadata"]["labels"]["kai.scheduler/queue"] == "team" and limits(kai["gang"]) == {}
    mig = pods(gpucast_bin, "kubernetes", "--mode", "mig", gpus="2xa100-80")
    for pod in mig.values():
        ((resource, count),) = limits(pod).items()
        assert re.fullmatch(r"nvidia\.com/mig-\dg\.\d0gb", resource) and count in "12"


def test_slurm_and_ray_requests(gpucast_bin, tmp_path):
    script = manifest(gpucast_bin, "slurm")
    assert "#   Name=shard Count=45838" in script
    words = [line.split(" --wrap=")[0] for line in script.splitlines() if line.startswith("sbatch")]
    assert words[0] == "sbatch --job-name=resnet-50 --constraint=p40 --gres=shard:6656"
    assert words[3] == "sbatch --job-name=gang --constraint=p40 --gres=gpu:p40:2"
    # A stand-in that runs its words, like a batch script.
    stand_in = 'sbatch() { for word; do case $word in --wrap=echo*) eval "${word#--wrap=}";; esac; done; }\n'
    assert subprocess.run(["sh", "-c", stand_in + script], capture_output=True, text=True, check=True).stdout == "two words\n"
    program = manifest(gpucast_bin, "ray")
    compile(program, "plan.py", "exec")
    listed = program.split("JOBS = ")[1].split("\n\n\n")[0]
    jobs = ast.literal_eval(listed)
    assert jobs[0] == ({"name": "ResNet 50!", "num_gpus": 0.2905, "resources": {"p40-mib": 6656}}, ["a b", "'x'", "$y"])
    assert jobs[3][0] == {"name": "gang", "num_gpus": 2, "resources": {"p40-mib": 20480}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "kubernets"), "one of kubernetes, hami"),
        (("--to", "kubernetes"), "--image NAME"),
        (("--to", "slurm"), "has no command"),
        (("--to", "ray", "--mode", "mig"), "another --mode"),
        (("--to", "kai", "--mode", "mig", "--image", "x"), "does not share cards by mig"),
    ],
)
def test_what_cannot_be_requested(gpucast_bin, words, says):
    job = '{"name": "a", "memory_gib": 1, "step_ms": 5}\n'
    done = subprocess.run([gpucast_bin, "pack", "-", "--gpus", "a100-80", *words], input=job, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr, done.stderr

"""Private pools in a replay: CUDA graphs and `torch.cuda.MemPool`. PyTorch's own allocator on the virtual GPU says what is right: the replay
of a capture must do what was recorded, event by event."""

import pytest

HEAD = """
import gc
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
side = torch.cuda.Stream()

def step(rows):
    optimizer.zero_grad()
    model(torch.zeros(rows, 1024, device="cuda")).square().mean().backward()
    optimizer.step()

def warm_up(rows):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(rows)
    torch.cuda.current_stream().wait_stream(side)
"""

# The capture's stream has free blocks of the default pool, which the capture must not use.
ONE_GRAPH = """
warm_up(300)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=side):
    step(300)
for _ in range(2):
    graph.replay()
warm_up(300)
"""

# Memory of the default stream, which is not captured, comes from the default pool. As torchtitan's checkpoints.
MEMORY_OF_THE_DEFAULT_STREAM = """
warm_up(300)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=side):
    step(300)
    with torch.cuda.stream(torch.cuda.default_stream()):
        kept = torch.empty(2**20, device="cuda")
    step(300)
graph.replay()
"""

# The first graph's memory goes back with the next empty_cache(), which comes before each capture.
GRAPHS_THAT_GO = """
for rows in (3000, 700, 2000):
    warm_up(rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step(rows)
    graph.replay()
    del graph
    gc.collect()
torch.cuda.empty_cache()
step(500)
"""

A_GRAPH_THAT_IS_RESET = """
graph = torch.cuda.CUDAGraph()
for rows in (3000, 700):
    warm_up(rows)
    with torch.cuda.graph(graph, stream=side):
        step(rows)
    graph.replay()
    graph.reset()
    torch.cuda.empty_cache()
step(500)
"""

GRAPHS_WITH_ONE_POOL = """
warm_up(3000)
pool = torch.cuda.graph_pool_handle()
graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
for graph, rows in zip(graphs, (3000, 700, 2000)):
    with torch.cuda.graph(graph, pool=pool, stream=side):
        step(rows)
for graph in graphs:
    graph.replay()
step(500)
"""

GRAPHED_CALLABLES = """
forward = torch.cuda.make_graphed_callables(model, (torch.zeros(64, 1024, device="cuda"),))
for _ in range(3):
    optimizer.zero_grad()
    forward(torch.zeros(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
"""

A_POOL_OF_THE_SCRIPT = """
warm_up(300)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    kept = [torch.empty(size * 2**18, device="cuda") for size in (1, 30, 7)]
del kept[1]
step(300)
with torch.cuda.use_mem_pool(pool):
    kept.append(torch.empty(20 * 2**18, device="cuda"))
step(300)
"""

COMPILED = """
compiled = torch.compile(model, mode="reduce-overhead")
for _ in range(4):
    optimizer.zero_grad()
    compiled(torch.zeros(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
"""

SCRIPTS = {name: text for name, text in globals().items() if name.isupper() and name != "HEAD"}


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "COMPILED"])
def test_a_replay_does_what_was_recorded(gpucast, name):
    run = gpucast(HEAD + SCRIPTS[name], "--until-end")
    assert run.code == 0, run.err
    assert run.report["matches_recorded"] is True, run.report["warnings"]
    assert run.capture.marks("pool_end")


@pytest.mark.once
@pytest.mark.slow
def test_a_replay_of_compiled_code_with_graphs(gpucast):
    run = gpucast(HEAD + COMPILED, "--until-end")
    assert run.code == 0, run.err
    assert run.report["matches_recorded"] is True, run.report["warnings"]
    assert run.capture.marks("pool_end")

import torch
from measure import measure

model = torch.nn.ModuleList(torch.nn.Linear(2048, 2048) for _ in range(2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8192, 2048, device="cuda")
streams = [torch.cuda.Stream() for _ in range(2)]


def step():
    """Two branches at the same time."""
    optimizer.zero_grad()
    main, branches = torch.cuda.current_stream(), []
    for stream, linear in zip(streams, model):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            branches.append(linear(linear(x)))
    for stream in streams:
        main.wait_stream(stream)
    (branches[0] + branches[1]).square().mean().backward()
    optimizer.step()


measure(step)

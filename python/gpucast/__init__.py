"""The capture layer: runs inside the user's Python under `gpucast run` and `gpucast profile`. Standard library only, Python 3.9 and later.

Each module imports only modules further down in this list; lower ones call higher ones only through functions passed down to them.

    fork_server       `gpucast batch`: a Python with torch imported, and the children that it forks for jobs
    importhook        notices `import torch`, hands over to `capture` or `profile_capture`

    capture           `gpucast run`: one process's capture; arms at the first CUDA call, ends it, writes it
    history           the allocator's history and the recorder's, as lines of a capture file
    what_if           changes to how the script trains, under `--what-if`
    what_if_optimizer  those about optimizers
    what_if_weights   weights in bfloat16
    what_if_compile   the model compiled
    what_if_fsdp      a model of DistributedDataParallel sharded by FSDP2
    what_if_loss      a loss in chunks
    what_if_accumulate  gradients of several backward passes for one step
    what_if_base      what all have in common
    hooks             what is patched and hooked in PyTorch, and what each hook records
    compiled          steps inside compiled code and CUDA graphs; the compiler's caches
    compiled_numbers  whole numbers that operators inside compiled code store
    folded_constants  constants that the compiler computes on the card

    profile_capture   `gpucast profile`: one process under PyTorch's profiler, from `import torch` to its trace
    profile_marks     the marks and tables of tensors that it adds
    profile_cuda      torch.cuda with one card that has nothing to do
    profile_device    the CPU instead of the CUDA device that the script asks for

    clock             `gpucast run --real-time` and `--warp`: a process on the card's clock, which records nothing
    ending            why a process ended, the messages to the supervisor, standing still
    checkpoints       saving checkpoints does nothing
    made_folders      folders that the script made and left empty go with the run
    values            values read from the card, where zero is no useful answer
    imagined_ranks    ranks that do not run here, under `--world-size`
    groups            the ranks of each of NCCL's communicators
    block_masks       the blocks that a mask of FlexAttention keeps
    shadow_values     the values of tensors on the card, followed on the host
    structured        values of large tensors, kept by structure: one-hot matrices, comparisons, triangles
    drawn             whole numbers that follow from unknown values, drawn from their distribution
    masked_scores     unknown scores with a mask that keeps some
    one_core          autograd's threads run on the core of their caller, under `--warp`
    own_time          the time that following values takes, which clocks and predicted steps leave out
    late_compiler     `torch._dynamo` is imported when a script uses it
    initialisation    large weights are not drawn on the host
    loops             loops that wait for an unknown answer of the card end
    asserts           the condition of an `assert` that reads the card
    hand_steps        counts steps of scripts without an optimizer
    horizon           `--steps auto`, and what the script would do after the steps that ran
    every             work of the script every few steps: `if step % 5 == 0: evaluate()`
    growth            memory that grows from step to step
    holders           what holds the tensors of past steps
    script_source     what the script does with a name, read from its source
    loader            the DataLoader that feeds training
    loader_measure    how fast it gives batches, in a forked child
    copies            copies of the trained parameters: EMA and the like
    graph             the computation graph of the model's first forward, on request
    operator_layout   where PyTorch keeps a running operator's arguments
    operators         the operators of one step, with their shapes
    pools             private pools of the allocator: CUDA graphs, torch.cuda.MemPool
    tensors           the addresses of named tensors
    whole_run         `gpucast time --run`: what happens when in a training with fewer batches
    steps             counts optimizer steps
    places            the lines of the user's files that train, under what-ifs
    unobserved        a few more steps after the capture, without hooks: the host's time
    unwritten_files   files that stand for unwritten checkpoints until the script ends
    patching          replaces PyTorch's functions; guards
    process           the state of this process's capture; all other modules read it
    recorder          marks, modules and tensors, kept in memory until the end
    cudnn             the user's own cuDNN: which one can be asked for workspaces
    made_files        what the script writes, in a run that leaves no files
    libraries         puts the virtual GPU's libraries in place before PyTorch asks for NVIDIA's
    session           the files for messages between this process and the supervisor

    probe             what `gpucast doctor` runs

Nothing here may break the user's program: each hook is guarded, and one that fails is switched off with a warning in the report.
"""

"""Section 3.2 of ORION: FLOPs of one forward pass of a sample in closed form, the factor of an iteration, and the memory surrogate."""

KAPPA = 3.0  # forward and backward; the paper has a range, its published scripts this value
KAPPA_RANGE = (2.5, 3.5)
OPTIMIZER_STATES = {"adam": 2, "adamw": 2, "sgd": 1}


def convolution(in_channels, out_channels, groups, window, out):
    """`window`, `out`: (height, width)."""
    return 2 * in_channels / groups * out_channels * window[0] * window[1] * out[0] * out[1]


def linear(inputs, outputs):
    return 2 * inputs * outputs


def cnn(convolutions, linears):
    """Layers as arguments of the two above."""
    return sum(convolution(*layer) for layer in convolutions) + sum(linear(*layer) for layer in linears)


def token_mixing_mlp(blocks, tokens, width, token_hidden, channel_hidden):
    """The paper calls its r_t and r_c expansion ratios. Only as the hidden widths of the two perceptrons do they make the formula true."""
    return blocks * 4 * tokens * width * (token_hidden + channel_hidden)


def transformer(blocks, length, width, heads, feed_forward):
    """As printed. Projections (8 T D^2) and attention (4 T^2 D) count a multiplication and an addition as one, the feed-forward as two."""
    head = width / heads
    return blocks * (4 * length * width**2 + 2 * heads * length**2 * head + 4 * length * width * feed_forward)


def transformer_all(blocks, length, width, feed_forward):
    """The same with 2 for each multiplication and addition, like the paper's other two families."""
    return blocks * (8 * length * width**2 + 4 * length**2 * width + 4 * length * width * feed_forward)


def iteration(forward, kappa=KAPPA):
    """FLOPs of forward, backward and optimizer. ValueError: a kappa that the paper does not have."""
    if not KAPPA_RANGE[0] <= kappa <= KAPPA_RANGE[1]:
        raise ValueError(f"kappa is from {KAPPA_RANGE[0]} to {KAPPA_RANGE[1]}, not {kappa}")
    return kappa * forward


def memory_surrogate(parameter_bytes, optimizer_bytes, activation_bytes):
    return parameter_bytes + optimizer_bytes + activation_bytes


def optimizer_bytes(parameter_bytes, optimizer):
    """State of an optimizer by its name. ValueError: the paper has none for it."""
    if optimizer.lower() not in OPTIMIZER_STATES:
        raise ValueError(f"no number of states for the optimizer '{optimizer}': {', '.join(OPTIMIZER_STATES)}")
    return OPTIMIZER_STATES[optimizer.lower()] * parameter_bytes


def intensity(flops, surrogate_bytes):
    return flops / surrogate_bytes if surrogate_bytes else 0.0

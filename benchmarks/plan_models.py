"""Costs of models: equal modules, and three that are shaped after public ones.

The shapes are those of the models' published configurations; the compute times a rough estimate of
what an accelerator needs that reads so many bytes, or multiplies so much, a second. How fast its
link is, the benchmark varies: so that all modules' copies take so many times what all runs take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from schedule.costs import SECOND, Costs, Link, Module, Part, Workload

UNIT = 10**6
"""Nanoseconds of an equal module's run, and its bytes."""
PARTS = 10
READ, MULTIPLIED = 3 * 10**12, 6 * 10**14
"""Bytes, and operations of 16 bits, a second."""
CONTEXT, WINDOW = 131_072, 1024
"""Tokens that a layer of Gemma 3 looks at: a global one, and a local one."""
IMAGE, TEXT = 4096, 512
"""Tokens of a picture of 1024 x 1024, and of what it is to show."""


def equal(modules: int, ratio: Fraction) -> Costs:
    """Modules in so many equal parts. A copy takes ``ratio`` times what a run takes."""
    parts = tuple(Part(f"part {number}", UNIT // PARTS) for number in range(PARTS))
    shapes = [Module(f"module {at}", parts) for at in range(modules)]
    return costs_of("equal modules", shapes, [UNIT] * modules, ratio)


def deepseek_v3(ratio: Fraction) -> Costs:
    """61 layers, of which 3 are dense; 8 bits, experts shared out among 8 ranks, attention on each:
    1.6 GB a layer and rank. Decoding reads all of it."""
    width, heads, experts, expert = 7168, 128, 256 // 8, 2048
    attention = {
        "q_a_proj": width * 1536,
        "q_b_proj": 1536 * heads * (128 + 64),
        "kv_a_proj": width * (512 + 64),
        "kv_b_proj": 512 * heads * (128 + 128),
        "o_proj": heads * 128 * width,
    }
    dense = {"gate_up_proj": 2 * width * 18432, "down_proj": 18432 * width}
    sparse = {
        "gate": 2 * width * 256,
        "experts.w13": experts * 2 * width * expert,
        "experts.w2": experts * expert * width,
        "shared.gate_up_proj": 2 * width * expert,
        "shared.down_proj": expert * width,
    }
    layers = [attention | (dense if at < 3 else sparse) for at in range(61)]
    return _read("DeepSeek-V3", layers, [0] * 61, ratio)


def gemma_3_27b(ratio: Fraction) -> Costs:
    """62 layers of equal size, every sixth of which looks at the whole context: 16 bits, one
    token after a long context."""
    width, heads, pairs, head, inner = 5376, 32, 16, 128, 21504
    layer = {
        "q_proj": 2 * width * heads * head,
        "k_proj": 2 * width * pairs * head,
        "v_proj": 2 * width * pairs * head,
        "o_proj": 2 * width * heads * head,
        "gate_proj": 2 * width * inner,
        "up_proj": 2 * width * inner,
        "down_proj": 2 * width * inner,
    }
    token = 2 * 2 * pairs * head
    caches = [token * (CONTEXT if at % 6 == 5 else WINDOW) for at in range(62)]
    return _read("Gemma 3 27B", [layer] * 62, caches, ratio)


def flux(ratio: Fraction) -> Costs:
    """19 double blocks, in which picture and text have weights of their own, and 38 single ones,
    16 bits: one step for one picture."""
    width, inner, tokens = 3072, 4 * 3072, IMAGE + TEXT
    own = {
        "attention": 2 * width * 4 * width,
        "modulation": 2 * width * 6 * width,
        "inner": 2 * width * inner,
        "outer": 2 * inner * width,
    }
    double = {
        f"{which}.{name}": size for which in ("picture", "text") for name, size in own.items()
    }
    single = {
        "modulation": 2 * width * 3 * width,
        "inner": 2 * width * (3 * width + inner),
        "outer": 2 * (width + inner) * width,
    }
    layers = [double] * 19 + [single] * 38
    # Two operations a weight of 2 bytes and token, but for modulations; and 4 a pair of tokens.
    looks = 4 * tokens**2 * width
    weights = sum(own.values()) - own["modulation"], sum(single.values()) - single["modulation"]
    compute = [(weight * tokens + looks) * SECOND // MULTIPLIED for weight in weights]
    return costs_of("FLUX.1", _modules(layers), [compute[0]] * 19 + [compute[1]] * 38, ratio)


MODELS = (deepseek_v3, gemma_3_27b, flux)


def _read(
    model: str, layers: Sequence[Mapping[str, int]], beside: Sequence[int], ratio: Fraction
) -> Costs:
    """Layers whose runs read all their weights, and so many bytes more."""
    read = [sum(one.values()) + more for one, more in zip(layers, beside, strict=True)]
    return costs_of(model, _modules(layers), [one * SECOND // READ for one in read], ratio)


def _modules(layers: Sequence[Mapping[str, int]]) -> list[Module]:
    return [
        Module(f"layer {at}", tuple(Part(name, size) for name, size in layer.items()))
        for at, layer in enumerate(layers)
    ]


def costs_of(
    model: str, modules: Sequence[Module], compute: Sequence[int], ratio: Fraction
) -> Costs:
    """With a link over which all modules take ``ratio`` times what they compute."""
    size = sum(module.size for module in modules)
    bandwidth = round(size * SECOND / (sum(compute) * ratio))
    workload = Workload("pass", tuple(compute), (0,) * (len(modules) + 1))
    return Costs(tuple(modules), (workload,), Link(bandwidth), model=model)

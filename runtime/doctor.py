"""Whether this machine does what the runtime takes for granted: ``python -m runtime doctor``.

Each check is a function of the device. Those of streams and events are in ``runtime.fences``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch
from torch import nn

from runtime import hooks
from runtime.device import Action, streams_of
from runtime.fences import copies_return, host_waits, latest_record, overlap, streams_wait
from runtime.findings import FAIL, VERDICTS, Check, Failed, check_named, require
from runtime.host import empty_bytes
from runtime.offload import offload
from schedule.operations import COPY

MIB = 1 << 20
LOCKED, COPIED = 256 * MIB, 64 * MIB
"""Bytes that must be lockable at once; bytes by which bandwidth is measured."""

# ---- memory


@check_named("pinned memory", "a CPU locks nothing")
def pinned_memory(device: torch.device) -> str:
    """So much can be page-locked at once."""
    del device  # it is the current accelerator that locks
    limit, asked = _memory_limit(), f"{LOCKED // MIB} MiB"
    try:
        block = empty_bytes(LOCKED, pin_memory=True)
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise Failed(
            f"{asked} of host memory can't be locked ({first}); locked memory is {limit}: raise "
            f"ulimit -l, or the memory limit of the container"
        ) from error
    require(block.is_pinned(), f"{asked} of host memory were asked for locked, and are not")
    return f"{asked} of host memory can be locked at once; locked memory is {limit}"


def _memory_limit() -> str:
    try:
        import resource
    except ImportError:  # not on Windows
        return "not limited by the system"
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    return "unlimited" if unlimited else f"limited to {soft / MIB:.1f} MiB (RLIMIT_MEMLOCK)"


@check_named("bandwidth")
def bandwidth(device: torch.device) -> str:
    """How quick copies are, both ways; and that they bring back what they took."""
    streams, size = streams_of(device), COPIED
    kinds = {"pageable": torch.empty(size, dtype=torch.uint8)}
    if device.type != "cpu":
        kinds = {"pinned": empty_bytes(size, pin_memory=True), **kinds}
    there, told = torch.empty(size, dtype=torch.uint8, device=device), []
    for kind, host in kinds.items():
        host.view(torch.int64).random_()
        sent = host.clone()
        to = _gigabytes(streams.copy(COPY, ((there, host),)), streams.synchronize, size)
        host.zero_()
        back = _gigabytes(streams.copy(COPY, ((host, there),)), streams.synchronize, size)
        require(
            torch.equal(host, sent), f"bytes copied from {kind} memory came back as other bytes"
        )
        told.append(f"{kind} {to:.1f} GB/s to the device and {back:.1f} back")
    return "; ".join(told)


def _gigabytes(copy: Action, synchronize: Action, size: int) -> float:
    copy()
    synchronize()
    start = time.perf_counter()
    copy()
    synchronize()
    return size / (time.perf_counter() - start) / 1e9


# ---- the runtime itself


WIDTH = 512
POLICIES = ("double_buffer", "slot_local")
IN_ORDER, SKIPPED = (0, 1, 2, 3, 4), (0, 2, 3, 4)
PASSES = (IN_ORDER, SKIPPED, IN_ORDER, IN_ORDER)


class Layers(nn.Module):
    """Five layers, the same ones every time, which run in any order."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in IN_ORDER)

    def forward(self, x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        for index in order:
            x = torch.tanh(self.layers[index](x))
        return x


def _outputs(model: Callable[..., torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    x = torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH).to(device)
    with torch.no_grad():
        return [model(x, order) for order in PASSES]


def require_equal(given: list[torch.Tensor], expected: list[torch.Tensor], what: str) -> None:
    for number, (ours, plain) in enumerate(zip(given, expected, strict=True)):
        require(torch.equal(ours, plain), f"{what}: pass {number} differs from the plain model's")


@check_named("offloaded model")
def offloaded_model(device: torch.device) -> str:
    """A small model, offloaded, gives what it gives whole, also when a module is skipped."""
    expected = _outputs(Layers().to(device), device)
    for policy in POLICIES:
        model = Layers()
        with offload(model, slots=2, policy=policy, device=device) as offloaded:
            given = _outputs(model, device)
            misses = offloaded.report().misses
        require_equal(given, expected, f"offloaded by {policy}")
        require(misses > 0, f"offloaded by {policy}: a module was skipped, and nobody noticed")
    return f"bit for bit the plain one by {' and '.join(POLICIES)}, one module skipped in a pass"


@check_named("compiler")
def compiler(device: torch.device) -> str:
    """The hooks are closed to torch.compile, which would trace plain ones away."""
    expected, model = _outputs(Layers().to(device), device), Layers()
    traced: list[bool] = []
    note = hooks._closed_to_dynamo(lambda *_: traced.append(torch.compiler.is_compiling()))
    model.layers[0].register_forward_pre_hook(note)
    with offload(model, slots=2, device=device) as offloaded:
        given = _outputs(torch.compile(model, backend="eager"), device)
        runs = offloaded.report().runs
    torch.compiler.reset()
    require(traced == [False] * len(PASSES), "torch.compile looks into hooks that are closed to it")
    wanted = sum(map(len, PASSES))
    require(runs == wanted, f"torch.compile skipped the hooks of {wanted - runs} of {wanted} runs")
    require_equal(given, expected, "compiled")
    return "a compiled model calls the hooks, and gives bit for bit what the plain one gives"


# ---- the command

CHECKS: tuple[Check, ...] = (
    host_waits,
    streams_wait,
    latest_record,
    copies_return,
    overlap,
    pinned_memory,
    bandwidth,
    offloaded_model,
    compiler,
)


def run(device: str | None, as_json: bool) -> int:
    """Print the findings; 1 if one of them is FAIL, else 0. OffloadError for no such device."""
    chosen = streams_of(device).device
    found = []
    if not as_json:
        print(f"{chosen}, torch {torch.__version__}")
    for check in CHECKS:
        finding = check(chosen)
        found.append(finding)
        if not as_json:
            print(f"{finding.verdict:<9} {finding.name:<16} {finding.sentence}", flush=True)
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in VERDICTS}
    good = not counts[FAIL]
    if as_json:
        data = {"device": str(chosen), "torch": torch.__version__, "good": good}
        print(json.dumps(data | {"findings": [asdict(one) for one in found]}, indent=2))
    else:
        print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 0 if good else 1

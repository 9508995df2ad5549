"""What a model costs on one machine: the bytes of its modules, and the time of what they do.

Times are whole nanoseconds and sizes whole bytes, so that all that is computed of them is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedule.errors import CostsError
from schedule.operations import COMPUTE, ONE_COPY_STREAM, Streams

SECOND = 10**9
"""In nanoseconds."""

MOST = 10**18
"""More nanoseconds or bytes than that are none (31 years, an exabyte)."""


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter of a module: its name there, and the bytes that a refill is shorter by if it is
    kept on the device."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Module:
    """An offloaded module. fixed: the bytes of a refill that belong to no part."""

    name: str
    parts: tuple[Part, ...]
    fixed: int = 0

    @property
    def size(self) -> int:
        """Bytes of its refill, if none of its parts is kept."""
        return self.fixed + sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of pass: decode or prefill, say.

    compute: nanoseconds of each module's run, its weights being there.
    between: of what stays on the device: before each module, and after the last.
    weight:  how much of a plan for several workloads it is; only the ratios count.
    """

    name: str
    compute: tuple[int, ...]
    between: tuple[int, ...]
    weight: float = 1.0

    @property
    def total(self) -> int:
        """Nanoseconds of a pass that waits for no copy."""
        return sum(self.compute) + sum(self.between)


@dataclass(frozen=True, slots=True)
class Link:
    """From host memory to the device.

    bandwidth: bytes a second of each copy stream, while all of them copy.
    latency:   nanoseconds that a copy takes beside its bytes.
    streams:   copy streams; 0 if copies take the compute stream's time, as on a CPU.
    """

    bandwidth: int
    latency: int = 0
    streams: int = 1

    def time(self, size: int) -> int:
        """Nanoseconds of a copy of so many bytes, rounded up."""
        return self.latency - (-size * SECOND // self.bandwidth)

    @property
    def copy_streams(self) -> Streams:
        """As a program knows them."""
        if self.streams == 0:
            return Streams((COMPUTE,))
        if self.streams == 1:
            return Streams()
        return Streams(tuple(f"copy {number}" for number in range(self.streams)))


@dataclass(frozen=True, slots=True)
class Costs:
    """What a model costs. CostsError, with the field, for what makes no sense.

    modules:   in execution order.          workloads: at least one.
    resident:  bytes of the model that stay on the device whatever is planned.
    model, device, torch: of what this was measured, for people and to refuse others.
    """

    modules: tuple[Module, ...]
    workloads: tuple[Workload, ...]
    link: Link
    resident: int = 0
    model: str = ""
    device: str = ""
    torch: str = ""

    def __post_init__(self) -> None:
        if not self.modules:
            raise CostsError("modules: none; costs are those of at least one module")
        if not self.workloads:
            raise CostsError("workloads: none; give the compute times of at least one")
        for name in ("model", "device", "torch"):
            if not isinstance(text := getattr(self, name), str) or not text.isprintable():
                raise CostsError(f"{name}: {text!a} is no text that can be printed")
        _whole("resident", self.resident)
        _whole("link.bandwidth", self.link.bandwidth, 1)
        _whole("link.latency", self.link.latency)
        _whole("link.streams", self.link.streams)
        if self.link.streams > 64:
            raise CostsError(f"link.streams: {self.link.streams}; a device has at most 64")
        _different("modules", [module.name for module in self.modules])
        _different("workloads", [workload.name for workload in self.workloads])
        for at, module in enumerate(self.modules):
            self._check_module(f"modules[{at}]", module)
        for at, workload in enumerate(self.workloads):
            self._check_workload(f"workloads[{at}]", workload)
        if not any(workload.weight for workload in self.workloads):
            raise CostsError("workloads: every weight is 0; give at least one that counts")

    def _check_module(self, where: str, module: Module) -> None:
        _whole(f"{where}.fixed", module.fixed)
        _different(f"{where}.parts", [part.name for part in module.parts])
        for at, part in enumerate(module.parts):
            _whole(f"{where}.parts[{at}].size", part.size)
        if module.size < 1:
            raise CostsError(f"{where}: {module.name} has no bytes to copy; leave it out")

    def _check_workload(self, where: str, workload: Workload) -> None:
        number = len(self.modules)
        for name, needed in ("compute", number), ("between", number + 1):
            times = getattr(workload, name)
            if len(times) != needed:
                raise CostsError(
                    f"{where}.{name}: {len(times)} times, where {number} modules need {needed}"
                )
            for at, time in enumerate(times):
                _whole(f"{where}.{name}[{at}]", time)
        weight = workload.weight
        if (
            not isinstance(weight, int | float)
            or isinstance(weight, bool)
            or not 0 <= weight < MOST
        ):
            raise CostsError(f"{where}.weight: {weight!r} is no number from 0 on")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each module's refill, if nothing of it is kept."""
        return tuple(module.size for module in self.modules)

    @property
    def whole(self) -> int:
        """Bytes on the device if all of the model is there."""
        return self.resident + sum(self.sizes)

    def times(self, workload: Workload, moved: Sequence[int]) -> Times:
        """What a schedule takes for which so many bytes of each module are moved."""
        copy = tuple(self.link.time(size) for size in moved)
        return Times(workload.compute, workload.between, copy, self.link.copy_streams)


@dataclass(frozen=True, slots=True)
class Times:
    """What a schedule's operations take, by module, in any unit of time.

    run, copy: of each module's run, and of its copy into a slot.
    between:   of what the compute stream does before each module, and after the last.
    """

    run: tuple[int, ...]
    between: tuple[int, ...]
    copy: tuple[int, ...]
    streams: Streams = ONE_COPY_STREAM


def equal_times(modules: int, run: int = 1, copy: int = 2) -> Times:
    """Of equal modules with nothing between them."""
    return Times((run,) * modules, (0,) * (modules + 1), (copy,) * modules)


def _whole(name: str, value: object, least: int = 0) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise CostsError(f"{name}: {value!r} is no whole number from {least} to 10**18")


def _different(name: str, names: Sequence[str]) -> None:
    for at, one in enumerate(names):
        if not isinstance(one, str) or not one or not one.isprintable():
            raise CostsError(f"{name}[{at}].name: {one!a} is no name that can be printed")
    if len(set(names)) < len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise CostsError(f"{name}: two are called {twice!a}; names are different")

"""Builds and registers the simulated accelerator, and its friendly face.

    sim = start()                                  # once a process; builds on first use
    x = torch.ones(3, device="simdev")             # devices simdev:0 and simdev:1
    with sim.steps(seed=7, adversary="copies"):    # one schedule, always the same
        ...

Everything else is torch's own: torch.Stream, torch.Event, torch.accelerator and its Graph,
``pin_memory``, ``copy_(non_blocking=True)``.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

NAME = "simdev"
ADVERSARIES = ("random", "compute", "copies")
_HERE = Path(__file__).parent
_CACHE = _HERE.parents[1] / "build" / "simdevice"


class NoCompiler(RuntimeError):
    """There is no C++ compiler on this machine."""


@dataclass(frozen=True)
class Counters:
    """Since the start, or the last ``reset_counters()``.

    kernels: operators that were put on a queue.   waits: those that made the host wait.
    waits_by_operator: the latter by name.
    copies, bytes: by direction: "host to device", "device to host", "on devices".
    new: how many "streams", "events" and "pinned blocks" were asked for; an event is made when it
    is first recorded.
    """

    kernels: int
    waits: int
    waits_by_operator: dict[str, int]
    copies: dict[str, int]
    bytes: dict[str, int]
    new: dict[str, int]


@dataclass(frozen=True)
class PinnedBytes:
    """asked: by those who hold it now. reserved: in powers of two, with what is kept in the cache
    (``torch.accelerator.empty_host_cache()`` gives that back). registered: by ``register_host``,
    in pages. most_registered: since the counters were last reset."""

    asked: int
    reserved: int
    registered: int
    most_registered: int


class Hold:
    """A stream that goes no further until ``release()``."""

    def __init__(self, controls: Any, stream: torch.Stream) -> None:
        self._controls = controls
        self._number: int | None = controls.hold(stream.device_index, stream.stream_id)

    def release(self) -> None:
        """Twice is once."""
        if self._number is not None:
            self._controls.release(self._number)
        self._number = None


class SimDevice:
    """The controls of the simulated accelerator; made by ``start()``."""

    Graph = torch.accelerator.Graph

    def __init__(self) -> None:
        self._controls = torch.ops.simdevice
        self.devices = tuple(f"{NAME}:{index}" for index in range(self._controls.devices()))

    # ---- timing

    def steps(
        self, seed: int, adversary: str = "random", torn: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        """Deterministic: no threads, no sleeps; the seed decides what runs next.

        adversary: "random"; or "compute" or "copies", which then run only when nothing else can.
        torn:      tasks may pause half way, so that what they read or write is seen half done.
        """
        return self._timing(True, seed, adversary, 0, torn)

    def threads(
        self, seed: int, adversary: str = "random", microseconds: int = 1000, torn: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        """One thread a stream, and delays of up to that many microseconds drawn from the seed.

        What the adversary names is always late, by all of them. Delays should exceed the host's
        time to enqueue an operator, some 100 microseconds, or they are not seen.
        """
        return self._timing(False, seed, adversary, microseconds, torn)

    @contextlib.contextmanager
    def paced(self, bandwidth: int, latency: int = 0) -> Iterator[None]:
        """One thread a stream, and known times: a copy to the device takes so many microseconds,
        and its bytes at so many a second; ``busy`` what it says, and a kernel what the machine
        takes. They are slept, so that all takes a little more, and nothing less.
        """
        if bandwidth < 1 or latency < 0:
            raise ValueError(f"no link has this bandwidth and latency: {bandwidth}, {latency}")
        with self.threads(0, microseconds=0, torn=False):
            self._controls.set_link(latency, bandwidth)
            try:
                yield
                self._controls.drain()
            finally:
                self._controls.set_link(0, 0)

    def busy(self, microseconds: int) -> None:
        """The current stream does nothing else for so long, in threads; in replays, if captured."""
        self._controls.busy(microseconds)

    @contextlib.contextmanager
    def _timing(
        self, steps: bool, seed: int, adversary: str, microseconds: int, torn: bool
    ) -> Iterator[None]:
        """Everything is drained before and after: what a seed does depends on nothing else."""
        if adversary not in ADVERSARIES:
            raise ValueError(f"adversary must be one of {ADVERSARIES}, got {adversary!r}")
        before = self._controls.timing()
        self._controls.set_timing(steps, seed, adversary, microseconds, torn)
        try:
            yield
        except BaseException:
            # The error under way says more than those that draining would bring.
            with contextlib.suppress(RuntimeError):
                self._controls.drain()
            self._controls.set_timing(*before)
            raise
        try:
            self._controls.drain()
        finally:
            self._controls.set_timing(*before)

    @contextlib.contextmanager
    def held(self, stream: torch.Stream) -> Iterator[Hold]:
        """The stream goes no further while the context is open, or until ``.release()``."""
        hold = Hold(self._controls, stream)
        try:
            yield hold
        finally:
            hold.release()

    def patience(self, seconds: float) -> None:
        """In threads: how long the host waits for a task to end before it reports a deadlock."""
        self._controls.set_patience(seconds)

    # ---- numbers

    def counters(self) -> Counters:
        values = self._controls.counters()

        def named(start: str) -> dict[str, int]:
            return {key[len(start) :]: n for key, n in values.items() if key.startswith(start)}

        return Counters(
            kernels=values.get("kernels", 0),
            waits=values.get("waits", 0),
            waits_by_operator=named("waits of "),
            copies=named("copies "),
            bytes=named("bytes "),
            new=named("new "),
        )

    def reset_counters(self) -> None:
        self._controls.reset_counters()

    def pinned(self) -> PinnedBytes:
        return PinnedBytes(*self._controls.pinned_bytes())

    # ---- faults

    @contextlib.contextmanager
    def pinned_fails_at(self, byte: int) -> Iterator[None]:
        """Allocations and registrations fail that would lock more than so many bytes in all."""
        self._controls.set_pinned_limit(byte)
        try:
            yield
        finally:
            self._controls.set_pinned_limit(-1)

    @contextlib.contextmanager
    def device_fails_at(self, byte: int) -> Iterator[None]:
        """Allocations raise torch.OutOfMemoryError that would take a device beyond so many."""
        self._controls.set_device_limit(byte)
        try:
            yield
        finally:
            self._controls.set_device_limit(-1)

    @contextlib.contextmanager
    def no_shallow_copies(self) -> Iterator[None]:
        """``.data`` can't be set across device types, as on some accelerators."""
        self._controls.allow_shallow_copies(False)
        try:
            yield
        finally:
            self._controls.allow_shallow_copies(True)


@functools.cache
def start() -> SimDevice:
    """Build the device if its sources changed, and make it this process's accelerator.

    NoCompiler if it can't be built. There is one PrivateUse1 back end a process, and no way back.
    """
    _build()
    sim = SimDevice()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module(len(sim.devices)))
    torch.utils.generate_methods_for_privateuse1_backend()
    atexit.register(_drain)  # workers must be idle before the interpreter and static objects go
    return sim


def _drain() -> None:
    with contextlib.suppress(RuntimeError):  # nobody is left to be told
        torch.ops.simdevice.drain()


def _build() -> None:
    from torch.utils import cpp_extension

    sources = sorted(_HERE.glob("*.cpp"))
    flags = ["-O1", "-Wall"]
    content = hashlib.sha256(repr((torch.__version__, sys.version, flags)).encode())
    for file in sorted([*sources, *_HERE.glob("*.h")]):
        content.update(file.name.encode() + file.read_bytes())
    directory = _CACHE / content.hexdigest()[:16]
    library = directory / "simdevice.so"
    if not library.exists() and shutil.which(cpp_extension.get_cxx_compiler()) is None:
        raise NoCompiler("no C++ compiler")
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "building", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds, the others wait until it has ended
        if not library.exists():
            _compile(sources, flags, directory)
    torch.ops.load_library(str(library))


def _compile(sources: list[Path], flags: list[str], directory: Path) -> None:
    from torch.utils import cpp_extension

    # torch's headers take longer than all of our files: include them once.
    everything = directory / "everything.cpp"
    everything.write_text("".join(f'#include "{source}"\n' for source in sources))
    path = os.environ["PATH"]
    # ninja is beside the interpreter, which need not be on the path.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
    try:
        cpp_extension.load(
            "simdevice",
            [str(everything)],
            extra_cflags=flags,
            build_directory=str(directory),
            is_python_module=False,
        )
    finally:
        os.environ["PATH"] = path


def _module(devices: int) -> types.ModuleType:
    """What torch looks up as torch.<name of the device>."""
    module: Any = types.ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: devices
    module.current_device = torch.accelerator.current_device_index
    module.set_device = torch.accelerator.set_device_index
    module.device = lambda device: torch.accelerator.device_index(torch.device(device).index)
    module._is_in_bad_fork = lambda: False
    # Random numbers come from the host's generator.
    module.manual_seed_all = lambda _: None
    module.get_rng_state = lambda *_, **__: torch.get_rng_state()
    module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.synchronize = torch.accelerator.synchronize
    module.current_stream = torch.accelerator.current_stream
    module.Stream, module.Event = torch.Stream, torch.Event
    module.register_host = torch.ops.simdevice.register_host
    module.unregister_host = torch.ops.simdevice.unregister_host
    return module

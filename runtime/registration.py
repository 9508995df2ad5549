"""Page-locking host memory that someone else allocated: one small function a device type.

A device type that offers none has torch's pinned allocator, which rounds each request up to a
power of two; see ``packing``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

PORTABLE = 1
"""cudaHostRegisterPortable: locked for every device, whichever is current."""
MAPPED = 2
"""ACL_HOST_REG_MAPPED: an NPU copies from such memory at full speed."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Locks and unlocks pages; RuntimeError where the driver refuses.

    register:   (address, bytes), both multiples of a page.
    unregister: (address). No copy may be under way that reads or writes there.
    """

    register: Callable[[int, int], None]
    unregister: Callable[[int], None]


def registration_of(device: torch.device) -> Registration | None:
    """What the device type offers; None if nothing. A back end outside torch offers it by
    ``register_host(address, bytes)`` and ``unregister_host(address)`` in its device module."""
    if device.type == "cuda":
        return _cuda()
    module = torch.get_device_module(device)
    if device.type == "npu":
        return _npu(module)
    if hasattr(module, "register_host"):
        return Registration(module.register_host, module.unregister_host)
    return None


def _cuda() -> Registration:
    driver = torch.cuda.cudart()

    def register(address: int, size: int) -> None:
        torch.cuda.check_error(driver.cudaHostRegister(address, size, PORTABLE))

    def unregister(address: int) -> None:
        torch.cuda.check_error(driver.cudaHostUnregister(address))

    return Registration(register, unregister)


def _npu(module: Any) -> Registration | None:
    """Newer versions of torch_npu have it."""
    driver = module.npurt() if hasattr(module, "npurt") else None
    if not hasattr(driver, "npuHostRegister"):
        return None

    def checked(name: str, *arguments: int) -> None:
        code = int(getattr(driver, name)(*arguments))
        if code:
            raise RuntimeError(f"{name} failed with error {code}")

    return Registration(
        lambda address, size: checked("npuHostRegister", address, size, MAPPED),
        lambda address: checked("npuHostUnregister", address),
    )


def forget_error(device: torch.device) -> None:
    """The driver keeps the error of a failed registration, and the next kernel's launch, whoever
    it belongs to, takes it for its own. So launch one that nobody needs: torch, which finds the
    error there, raises it and clears it."""
    with suppress(RuntimeError):
        torch.ones(1, device=device)

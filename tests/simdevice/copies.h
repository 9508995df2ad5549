// Copies, and which of them the host waits for.
//
//   host to device   pinned, non_blocking, plain: read by the device at its own time.
//                    otherwise non_blocking: read at the call, so that the source may be used
//                    again; it lands later. Blocking: has landed when the call returns.
//   device to host   pinned, non_blocking, plain: later. All others: at the call.
//   on a device      later. Between devices: later, and both devices' current streams are in order.
//
// Plain: no conversion, same strides; anything else takes a pageable temporary on CUDA too.
#pragma once

#include <ATen/core/Tensor.h>

namespace simdevice {

at::Tensor Copy(const at::Tensor& source, const at::Tensor& target, bool non_blocking);

// What copies to the device take, in threads: microseconds, and bytes a second. No bandwidth: no
// time of their own.
void SetLink(int64_t latency, int64_t bandwidth);

}  // namespace simdevice

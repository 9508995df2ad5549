// Device memory, and tensors over it that CPU kernels can work on.
//
// Device memory is host memory. Its use by the wrong stream at the wrong time shows, since a block
// is filled with 0xFF (NaN in every float type, -1 in every signed integer)
//   - when it is allocated, and again when the stream that allocated it comes to this point: as
//     with any caching allocator, until then the block's former owner may write to it;
//   - when that stream comes to the point where it was freed; streams named by record_stream are
//     waited for first, others that still use it are not.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace simdevice {

c10::Allocator* DeviceMemory();
void RecordStream(const c10::DataPtr& pointer, c10::Stream stream);
c10::Device DeviceOfPointer(const void* pointer);
// Allocations that would take a device beyond this many bytes fail; < 0: none does.
void SetDeviceLimit(int64_t bytes);

// The same bytes as a CPU tensor that shares nothing else with `tensor`: a queued task must not see
// later changes of the caller's tensor object, and keeps the bytes alive.
at::Tensor CpuAlias(const at::Tensor& tensor);
// A tensor with this storage and these keys, and the geometry of `like`.
at::Tensor TensorOver(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like,
                      caffe2::TypeMeta dtype);
// On the current device.
at::Tensor EmptyOnDevice(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype);

// Both keep the content, in stream order.
void ResizeStorage(c10::StorageImpl* storage, size_t bytes);
void SetShape(const at::Tensor& tensor, const at::Tensor& like);

}  // namespace simdevice

// Operators that the fallback can't do: they make memory, change metadata, or know about the host.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <atomic>
#include <optional>
#include <vector>

#include "copies.h"
#include "fallback.h"
#include "memory.h"
#include "operators.h"
#include "streams.h"

namespace simdevice {
namespace {

using at::Tensor;
using Sizes = c10::SymIntArrayRef;

std::atomic<bool> g_shallow_copies{true};

at::IntArrayRef Ints(Sizes sizes) { return C10_AS_INTARRAYREF_SLOW(sizes); }

c10::Device Chosen(std::optional<c10::Device> device) {
  return DeviceOf(device ? device->index() : c10::DeviceIndex{-1});
}

Tensor EmptyFormat(Sizes size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                   std::optional<c10::Device> device, std::optional<bool>,
                   std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(Chosen(device));
  return at::detail::empty_generic(Ints(size), DeviceMemory(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

Tensor EmptyStrided(Sizes size, Sizes stride, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout>, std::optional<c10::Device> device,
                    std::optional<bool>) {
  const c10::DeviceGuard guard(Chosen(device));
  return EmptyOnDevice(Ints(size), Ints(stride), c10::dtype_or_default(dtype));
}

const Tensor& Resize(const Tensor& self, Sizes size, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  SetShape(self, at::detail::empty_meta(Ints(size), self.scalar_type(), std::nullopt, std::nullopt,
                                        std::nullopt, format));
  return self;
}

Tensor AsStrided(const Tensor& self, Sizes size, Sizes stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->guard_int(__FILE__, __LINE__);
  return at::native::as_strided_tensorimpl(self, Ints(size), Ints(stride), start);
}

Tensor View(const Tensor& self, Sizes size) { return at::native::view(self, Ints(size)); }

Tensor ReshapeAlias(const Tensor& self, Sizes size, Sizes stride) {
  return at::native::_reshape_alias(self, Ints(size), Ints(stride));
}

// Sets the tensor's parts itself: torch's own kernel for it would take a meta storage.
Tensor& SetStorageAt(Tensor& self, at::Storage storage, c10::SymInt offset, Sizes size,
                     Sizes stride) {
  std::vector<int64_t> strides = Ints(stride).vec();
  if (strides.size() != size.size()) {  // none were given: contiguous
    strides.assign(size.size(), 1);
    for (size_t i = size.size(); i-- > 1;) strides[i - 1] = strides[i] * Ints(size)[i];
  }
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(Ints(size), strides);
  return self;
}

Tensor& SetStorage(Tensor& self, at::Storage storage) {
  const auto length = static_cast<int64_t>(storage.nbytes() / self.element_size());
  return self.set_(storage, 0, {length}, {});
}

Tensor& SetTensor(Tensor& self, const Tensor& source) {
  return self.set_(source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

void RecordStreamOf(Tensor& self, c10::Stream stream) {
  RecordStream(self.storage().data_ptr(), stream);
}

// As between the CPU and CUDA, `.data` may be set across devices.
bool HasCompatibleShallowCopyType(const Tensor& self, const Tensor& from) {
  if (self.layout() != at::kStrided || from.layout() != at::kStrided) return false;
  for (const Tensor& tensor : {self, from}) {
    if (!tensor.is_cpu() && !tensor.is_privateuseone()) return false;
  }
  return g_shallow_copies || self.device().type() == from.device().type();
}

// PyTorch renames it for foreign back ends; the arguments are the same.
void Convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  Fallback(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", ""), stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", EmptyFormat);
  library.impl("empty_strided", EmptyStrided);
  library.impl("_copy_from", Copy);
  library.impl("resize_", Resize);
  library.impl("as_strided", AsStrided);
  library.impl("view", View);
  library.impl("_reshape_alias", ReshapeAlias);
  library.impl("set_.source_Storage_storage_offset", SetStorageAt);
  library.impl("set_.source_Storage", SetStorage);
  library.impl("set_.source_Tensor", SetTensor);
  library.impl("record_stream", RecordStreamOf);
  library.impl("_has_compatible_shallow_copy_type", HasCompatibleShallowCopyType);
  library.impl("convolution_overrideable",
               torch::CppFunction::makeFromBoxedFunction<&Convolution>());
  // Else they are decomposed, and rounded unlike the CPU's kernels.
  for (const char* name : {"native_layer_norm", "native_group_norm"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  }
}

// Lazy conjugates and negatives reach Copy as they are: torch's own fallback for them clones, that
// is copies, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace

void AllowShallowCopies(bool on) { g_shallow_copies = on; }

}  // namespace simdevice

// An operator is a view (done now, it computes nothing), asynchronous (shapes now, on meta tensors;
// the CPU's kernel later, by the queue, on CPU aliases), or it makes the host wait.
#include "fallback.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "arguments.h"
#include "counters.h"
#include "memory.h"
#include "shapes.h"
#include "streams.h"

namespace simdevice {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

// A real kernel reads its inputs over a span of time. Read half of the bytes, pause, read the rest:
// what is overwritten meanwhile is seen half old, half new.
void TornRead(const c10::FunctionSchema& schema, Stack* arguments, int length) {
  std::vector<std::pair<Tensor, Tensor>> halves;
  for (size_t i = 0; i < arguments->size(); ++i) {
    if (IsWritten(schema.arguments()[i])) continue;
    (*arguments)[i] = MapTensors((*arguments)[i], [&](const Tensor& from) {
      if (from.dim() == 0 || from.numel() == 0 || !from.is_non_overlapping_and_dense()) return from;
      Tensor to = at::empty_strided(from.sizes(), from.strides(), from.options());
      std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes() / 2);
      halves.emplace_back(from, to);
      return to;
    });
  }
  Pause(length);
  for (auto& [from, to] : halves) {
    const size_t half = from.nbytes() / 2;
    std::memcpy(static_cast<char*>(to.data_ptr()) + half,
                static_cast<const char*>(from.data_ptr()) + half, from.nbytes() - half);
  }
}

// Ask the CPU's kernel for the geometry, and build it on our storage.
Stack RunView(const c10::OperatorHandle& op, const Stack& arguments) {
  // The base may be a slice of its block: the views' offsets count from the block's beginning.
  Stack results = OnDevice(arguments, at::kCPU, CpuAlias);
  {
    c10::InferenceMode no_autograd(true);
    op.callBoxed(&results);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor base =
        Aliased(op.schema(), op.schema().returns()[i], arguments).toTensor();
    const int64_t shift = CpuAlias(base).storage_offset() - base.storage_offset();
    results[i] = MapTensors(results[i], [&](const Tensor& view) {
      Tensor result = TensorOver(base.storage(), base.key_set(), view, view.dtype());
      const int64_t bytes = shift * static_cast<int64_t>(base.element_size());
      result.unsafeGetTensorImpl()->set_storage_offset(
          view.storage_offset() - bytes / static_cast<int64_t>(view.element_size()));
      return result;
    });
  }
  return results;
}

// A new tensor on the device with these values, in stream order.
Tensor Upload(const Tensor& values) {
  TORCH_CHECK(values.layout() == at::kStrided, "simdev: there are no tensors of layout ",
              values.layout());
  Tensor result = EmptyOnDevice(values.sizes(), values.strides(), values.scalar_type());
  Issue(CurrentStream(-1), Kind::kOther, "upload",
        [to = CpuAlias(result), values](int) { to.copy_(values); });
  return result;
}

// Shapes depend on data, or the host wants the answer, or there is no meta kernel: wait for the
// stream, then run here.
Stack RunSynchronously(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto& schema = op.schema();
  const std::string name = toString(op.operator_name());
  const c10::Stream stream = CurrentStream(-1);
  if (auto capture = CaptureOf(stream)) capture->Refuse(name + " makes the host wait");
  Counters::Get().Add("waits");
  Counters::Get().Add("waits of " + name);
  SynchronizeStream(stream);
  c10::InferenceMode no_autograd(true);
  Stack on_cpu;
  for (size_t i = 0; i < arguments.size(); ++i) {
    // The kernel may resize an out= tensor, but not our memory: lend it a copy.
    const bool is_out = schema.arguments()[i].is_out();
    on_cpu.push_back(arguments[i].isDevice()
                         ? IValue(c10::Device(at::kCPU))
                         : MapTensors(arguments[i], [&](const Tensor& tensor) {
                             if (is_out) return CpuAlias(tensor).clone();
                             return tensor.is_cpu() ? tensor : CpuAlias(tensor);
                           }));
  }
  Stack out = on_cpu;
  op.callBoxed(&out);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!schema.arguments()[i].is_out()) continue;
    const auto to = TensorsIn(arguments[i]);
    const auto from = TensorsIn(on_cpu[i]);
    for (size_t j = 0; j < to.size(); ++j) {
      SetShape(to[j], from[j]);
      Issue(stream, Kind::kOther, "upload",
            [to = CpuAlias(to[j]), from = from[j]](int) { to.copy_(from); });
    }
  }
  Stack results;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto& result = schema.returns()[i];
    results.push_back(result.alias_info() != nullptr ? Aliased(schema, result, arguments)
                                                     : MapTensors(out[i], Upload));
  }
  return results;
}

bool CanBeAsynchronous(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto& schema = op.schema();
  if (op.hasTag(at::Tag::dynamic_output_shape)) return false;
  if (op.hasTag(at::Tag::data_dependent_output)) return false;
  // The CPU's generator is the host's too: drawn from later, the numbers would hang on what the
  // host does meanwhile.
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  // Here meta and CPU kernels differ in the shapes of results that nobody uses.
  static const auto& odd = *new std::set<std::string>{
      "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only"};
  if (odd.count(schema.name()) > 0) return false;
  for (const auto& result : schema.returns()) {
    if (*result.type() != *c10::TensorType::get() &&
        *result.type() != *c10::ListType::ofTensors()) {
      return false;
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!IsWritten(schema.arguments()[i])) continue;
    for (const Tensor& tensor : TensorsIn(arguments[i])) {
      if (tensor.is_cpu()) return false;
    }
  }
  return true;
}

// Nothing: nothing was changed, and the operator can't be put on a queue.
std::optional<Stack> RunAsynchronously(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto& schema = op.schema();
  if (!CanBeAsynchronous(op, arguments)) return std::nullopt;
  const auto shapes = FindShapes(op, arguments);
  if (shapes == nullptr) return std::nullopt;
  const Stack& meta = shapes->results;
  // out= tensors get their size, and results their memory, before the caller can hold a pointer.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!IsWritten(schema.arguments()[i])) continue;
    const auto to = TensorsIn(arguments[i]);
    const auto like = TensorsIn(shapes->arguments[i]);
    for (size_t j = 0; j < to.size(); ++j) {
      if (to[j].sizes() != like[j].sizes()) SetShape(to[j], like[j]);
    }
  }
  Stack results;
  std::vector<std::vector<Tensor>> fresh(meta.size());  // by result: aliases of its new tensors
  for (size_t i = 0; i < meta.size(); ++i) {
    const auto& result = schema.returns()[i];
    results.push_back(result.alias_info() != nullptr
                          ? Aliased(schema, result, arguments)
                          : MapTensors(meta[i], [&](const Tensor& like) {
                              Tensor tensor = EmptyOnDevice(like.sizes(), like.strides(),
                                                            like.scalar_type());
                              fresh[i].push_back(CpuAlias(tensor));
                              return tensor;
                            }));
  }
  // A launch takes CPU values as they are now: copy them. A wrapped number can't change, and must
  // stay one.
  const Stack on_cpu = OnDevice(arguments, at::kCPU, [](const Tensor& tensor) {
    if (!tensor.is_cpu()) return CpuAlias(tensor);
    return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? tensor : tensor.clone();
  });
  Counters::Get().Add("kernels");
  Issue(CurrentStream(-1), Kind::kCompute, toString(op.operator_name()),
        [op, on_cpu, fresh](int pause) {
          Stack stack = on_cpu;
          if (pause > 0) TornRead(op.schema(), &stack, pause);
          op.callBoxed(&stack);
          for (size_t i = 0; i < fresh.size(); ++i) {
            const auto got = fresh[i].empty() ? fresh[i] : TensorsIn(stack[i]);
            for (size_t j = 0; j < got.size(); ++j) {  // copy_ would broadcast and convert
              TORCH_CHECK(j < fresh[i].size() && got[j].sizes() == fresh[i][j].sizes() &&
                              got[j].dtype() == fresh[i][j].dtype(),
                          "the meta kernel and the CPU's kernel disagree");
              fresh[i][j].copy_(got[j]);
            }
          }
        });
  return results;
}

}  // namespace

void Fallback(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  bool is_view = false;
  for (const auto& result : schema.returns()) {
    is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  const Stack arguments = torch::jit::pop(*stack, schema.arguments().size());
  const c10::DeviceGuard guard(DeviceOfArguments(schema, arguments));
  std::optional<Stack> results;
  if (is_view) {
    results = RunView(op, arguments);
  } else {
    results = RunAsynchronously(op, arguments);
  }
  if (!results) results = RunSynchronously(op, arguments);
  for (IValue& result : *results) stack->push_back(std::move(result));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

}  // namespace simdevice

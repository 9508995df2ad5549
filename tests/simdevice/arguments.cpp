#include "arguments.h"

#include <c10/util/Exception.h>

#include <set>
#include <string>
#include <utility>

#include "streams.h"

namespace simdevice {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

IValue MapTensors(const IValue& value, const TensorFunction& function) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? IValue(function(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<Tensor> results;
    for (const Tensor& tensor : value.toTensorVector()) {
      results.push_back(tensor.defined() ? function(tensor) : tensor);
    }
    return results;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> results;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor && tensor->defined()) tensor = function(*tensor);
      results.push_back(std::move(tensor));
    }
    return results;
  }
  return value;
}

std::vector<Tensor> TensorsIn(const IValue& value) {
  std::vector<Tensor> tensors;
  MapTensors(value, [&](const Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}

Stack OnDevice(const Stack& arguments, c10::Device device, const TensorFunction& function) {
  Stack results;
  for (const IValue& argument : arguments) {
    results.push_back(argument.isDevice() ? IValue(device) : MapTensors(argument, function));
  }
  return results;
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

const IValue& Aliased(const c10::FunctionSchema& schema, const c10::Argument& result,
                      const Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) {
      return arguments[i];
    }
  }
  TORCH_CHECK(false, "simdev: ", schema.name(), " returns an alias of no argument");
}

c10::Device DeviceOfArguments(const c10::FunctionSchema& schema, const Stack& arguments) {
  // Arguments that are host tensors on any accelerator: indices, lengths, where to split.
  static const auto& host = *new std::set<std::string>{
      "indices", "index", "lengths", "tensor_indices_or_sections", "input_lengths",
      "target_lengths", "batch_sizes"};
  std::optional<c10::Device> found;
  std::optional<c10::Device> asked;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isDevice() && arguments[i].toDevice().type() == kType) {
      asked = DeviceOf(arguments[i].toDevice().index());
    }
    for (const Tensor& tensor : TensorsIn(arguments[i])) {
      if (tensor.is_cpu()) {
        TORCH_CHECK(tensor.dim() == 0 || host.count(schema.arguments()[i].name()) > 0,
                    "Expected all tensors to be on the same device, but argument ",
                    schema.arguments()[i].name(), " of ", schema.name(),
                    " is on cpu and others are on simdev");
      } else {
        TORCH_CHECK(!found || *found == tensor.device(),
                    "Expected all tensors to be on the same device, but ", schema.name(),
                    " was given some on ", *found, " and some on ", tensor.device());
        found = tensor.device();
      }
    }
  }
  if (found) return *found;
  return asked ? *asked : DeviceOf(-1);
}

}  // namespace simdevice

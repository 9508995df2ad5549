// The tensors among an operator's arguments and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <vector>

namespace simdevice {

using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

// Of a tensor, a list of tensors, or a list of optional ones; all else stays as it is.
c10::IValue MapTensors(const c10::IValue& value, const TensorFunction& function);
std::vector<at::Tensor> TensorsIn(const c10::IValue& value);
// The arguments with their tensors mapped, and device arguments replaced.
torch::jit::Stack OnDevice(const torch::jit::Stack& arguments, c10::Device device,
                           const TensorFunction& function);

bool IsWritten(const c10::Argument& argument);
// The argument that a result is, by the schema's alias names ("Tensor(a!)").
const c10::IValue& Aliased(const c10::FunctionSchema& schema, const c10::Argument& result,
                           const torch::jit::Stack& arguments);

// The one device that the tensors are on, else the one that is asked for. Throws if they are on
// several, or if a host tensor is among them that is no scalar and no index.
c10::Device DeviceOfArguments(const c10::FunctionSchema& schema,
                              const torch::jit::Stack& arguments);

}  // namespace simdevice

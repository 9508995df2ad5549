// The shapes of an operator's results, before it has run.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

namespace simdevice {

// Meta tensors in the place of the arguments, resized where the operator resizes what it writes,
// and in the place of the results.
struct Shapes {
  torch::jit::Stack arguments;
  torch::jit::Stack results;
};

// Null: there is a gap in meta, or the user erred; the CPU's kernel shall say it.
std::shared_ptr<const Shapes> FindShapes(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& arguments);

}  // namespace simdevice

// Runs any operator that has no kernel of its own on this device.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace simdevice {

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace simdevice

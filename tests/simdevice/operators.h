// Switches of the operators.
#pragma once

namespace simdevice {

// Whether `.data` may be set across device types, as it may on CUDA. Some accelerators refuse it.
void AllowShallowCopies(bool on);

}  // namespace simdevice

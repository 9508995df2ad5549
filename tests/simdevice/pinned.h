// Page-locked host memory: the only kind that a copy reads or writes while the host goes on.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace simdevice {

struct PinnedBytes {
  int64_t asked = 0;     // by those who hold it now
  int64_t reserved = 0;  // in powers of two, with what is kept for the next one
};

c10::Allocator* PinnedMemory();
bool IsPinned(const void* pointer);
PinnedBytes GetPinnedBytes();
// Allocations that would reserve more than this many bytes fail; < 0: none does.
void SetPinnedLimit(int64_t bytes);

}  // namespace simdevice

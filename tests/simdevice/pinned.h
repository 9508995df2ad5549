// Page-locked host memory: the only kind that a copy reads or writes while the host goes on.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace simdevice {

struct PinnedBytes {
  int64_t asked = 0;     // by those who hold it now
  int64_t reserved = 0;  // in powers of two, with what is kept for the next one
  int64_t registered = 0;       // in pages, of memory that others allocated
  int64_t most_registered = 0;  // since the counters were last reset
};

c10::Allocator* PinnedMemory();
bool IsPinned(const void* pointer);
PinnedBytes GetPinnedBytes();
// Allocations and registrations that would lock more than this many bytes fail; < 0: none does.
void SetPinnedLimit(int64_t bytes);
void ResetMostRegistered();

// Page-lock memory that someone else allocated, until it is unregistered. An error of
// registration is also kept, as CUDA keeps it: the next kernel that is issued brings it again.
void RegisterHost(int64_t address, int64_t bytes);
void UnregisterHost(int64_t address);
void ThrowKeptError();

// Held by whatever will read or write there: meanwhile the memory can't be unregistered. Null for
// memory that is not registered.
std::shared_ptr<void> HoldRegistered(const void* pointer);

}  // namespace simdevice

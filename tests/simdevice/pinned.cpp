// Page-locked host memory, as torch's own caching allocator hands it out: in powers of two, and
// kept for the next one who asks for that size.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <c10/util/llvmMathExtras.h>

#include <cstring>
#include <map>
#include <mutex>

#include "pinned.h"
#include "streams.h"

namespace simdevice {
namespace {

struct PinnedBlock {
  size_t asked;
  size_t reserved;
};

std::mutex g_pinned_mutex;  // guards the rest
auto& g_pinned_live = *new std::map<const char*, PinnedBlock>();
auto& g_pinned_cache = *new std::multimap<size_t, void*>();
PinnedBytes g_pinned_bytes;
int64_t g_pinned_limit = -1;

void FreePinned(void* data) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  auto found = g_pinned_live.find(static_cast<char*>(data));
  std::memset(data, 0xFF, found->second.reserved);  // a view that outlived it must show
  g_pinned_cache.emplace(found->second.reserved, data);
  g_pinned_bytes.asked -= static_cast<int64_t>(found->second.asked);
  g_pinned_live.erase(found);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    std::lock_guard<std::mutex> lock(g_pinned_mutex);
    const size_t reserved = size == 0 ? 1 : c10::llvm::PowerOf2Ceil(size);
    void* data = nullptr;
    auto cached = g_pinned_cache.find(reserved);
    if (cached != g_pinned_cache.end()) {
      data = cached->second;
      g_pinned_cache.erase(cached);
    } else {
      const int64_t total = g_pinned_bytes.reserved + static_cast<int64_t>(reserved);
      TORCH_CHECK(g_pinned_limit < 0 || total <= g_pinned_limit,
                  "simdev: out of pinned memory: ", size, " bytes asked, rounded to ", reserved,
                  "; ", g_pinned_bytes.reserved, " of ", g_pinned_limit, " in use");
      data = c10::alloc_cpu(reserved);
      g_pinned_bytes.reserved += static_cast<int64_t>(reserved);
    }
    g_pinned_bytes.asked += static_cast<int64_t>(size);
    g_pinned_live[static_cast<char*>(data)] = {size, reserved};
    return {data, data, &FreePinned, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreePinned; }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
  // A queued copy holds the storage, so memory comes back only when it has ended.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {
    std::lock_guard<std::mutex> lock(g_pinned_mutex);
    for (auto& [reserved, data] : g_pinned_cache) {
      c10::free_cpu(data);
      g_pinned_bytes.reserved -= static_cast<int64_t>(reserved);
    }
    g_pinned_cache.clear();
  }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

auto& g_pinned_memory = *new PinnedAllocator();
const bool g_pinned_memory_registered = [] {
  at::setHostAllocator(kType, &g_pinned_memory);
  return true;
}();

}  // namespace

c10::Allocator* PinnedMemory() { return &g_pinned_memory; }

bool IsPinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  auto* address = static_cast<const char*>(pointer);
  auto after = g_pinned_live.upper_bound(address);
  if (after == g_pinned_live.begin()) return false;
  const auto& [begin, block] = *std::prev(after);
  return address < begin + block.reserved;
}

PinnedBytes GetPinnedBytes() {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  return g_pinned_bytes;
}

void SetPinnedLimit(int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  g_pinned_limit = bytes;
}

}  // namespace simdevice

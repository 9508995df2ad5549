// Page-locked host memory. As torch's own caching allocator hands it out: in powers of two, and
// kept for the next one who asks for that size. And registered: pages of someone else's.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <c10/util/llvmMathExtras.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include "counters.h"
#include "pinned.h"
#include "streams.h"

namespace simdevice {
namespace {

struct PinnedBlock {
  size_t asked;
  size_t reserved;
};

struct RegisteredRange {
  int64_t bytes;
  int64_t locked;
  std::shared_ptr<void> held;  // one more owner for each pending copy
};

constexpr int64_t kPage = 4096;

std::mutex g_pinned_mutex;  // guards the rest
auto& g_pinned_live = *new std::map<const char*, PinnedBlock>();
auto& g_pinned_cache = *new std::multimap<size_t, void*>();
auto& g_registered = *new std::map<const char*, RegisteredRange>();
auto& g_kept_error = *new std::string();
PinnedBytes g_pinned_bytes;
int64_t g_pinned_limit = -1;

bool BeyondLimit(int64_t more) {
  const int64_t locked = g_pinned_bytes.reserved + g_pinned_bytes.registered;
  return g_pinned_limit >= 0 && locked + more > g_pinned_limit;
}

// Of blocks by address, the one that the address lies in; the end if there is none.
template <typename Blocks, typename Size>
auto BlockAt(Blocks& blocks, const void* pointer, Size size) {
  auto* address = static_cast<const char*>(pointer);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return blocks.end();
  auto found = std::prev(after);
  return address < found->first + size(found->second) ? found : blocks.end();
}

auto RegisteredAt(const void* pointer) {
  return BlockAt(g_registered, pointer, [](const RegisteredRange& range) { return range.bytes; });
}

auto AllocatedAt(const void* pointer) {
  return BlockAt(g_pinned_live, pointer, [](const PinnedBlock& block) { return block.reserved; });
}

// Empty if the range may be registered.
std::string WhyNotRegistered(const char* begin, int64_t bytes, int64_t locked) {
  std::ostringstream text;
  if (begin == nullptr || bytes <= 0) {
    text << bytes << " bytes at " << static_cast<const void*>(begin) << " are no memory";
    return text.str();
  }
  auto next = g_registered.lower_bound(begin);
  const bool inside = RegisteredAt(begin) != g_registered.end();
  if (inside || (next != g_registered.end() && next->first < begin + bytes)) {
    return "some of the memory is registered already";
  }
  if (AllocatedAt(begin) != g_pinned_live.end()) return "the memory is page-locked already";
  if (BeyondLimit(locked)) {
    text << "out of pinned memory: " << locked << " bytes in pages asked, "
         << g_pinned_bytes.reserved + g_pinned_bytes.registered << " of " << g_pinned_limit
         << " in use";
  }
  return text.str();
}

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
    Counters::Get().Add("new pinned blocks");
    const size_t reserved = size == 0 ? 1 : c10::llvm::PowerOf2Ceil(size);
    void* data = nullptr;
    auto cached = g_pinned_cache.find(reserved);
    if (cached != g_pinned_cache.end()) {
      data = cached->second;
      g_pinned_cache.erase(cached);
    } else {
      TORCH_CHECK(!BeyondLimit(static_cast<int64_t>(reserved)),
                  "simdev: out of pinned memory: ", size, " bytes asked, rounded to ", reserved,
                  "; ", g_pinned_bytes.reserved + g_pinned_bytes.registered, " of ",
                  g_pinned_limit, " in use");
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
  return AllocatedAt(pointer) != g_pinned_live.end() ||
         RegisteredAt(pointer) != g_registered.end();
}

void RegisterHost(int64_t address, int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  const int64_t first = address / kPage, last = (address + bytes + kPage - 1) / kPage;
  const int64_t locked = (last - first) * kPage;
  auto* begin = reinterpret_cast<const char*>(address);
  const std::string why = WhyNotRegistered(begin, bytes, locked);
  if (!why.empty()) g_kept_error = why;
  TORCH_CHECK(why.empty(), "simdev: can't register: ", why);
  g_registered[begin] = {bytes, locked, std::make_shared<int>(0)};
  g_pinned_bytes.registered += locked;
  g_pinned_bytes.most_registered =
      std::max(g_pinned_bytes.most_registered, g_pinned_bytes.registered);
}

void UnregisterHost(int64_t address) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  auto found = g_registered.find(reinterpret_cast<const char*>(address));
  TORCH_CHECK(found != g_registered.end(), "simdev: can't unregister: no memory is registered at ",
              reinterpret_cast<const void*>(address));
  const int64_t pending = found->second.held.use_count() - 1;
  TORCH_CHECK(pending == 0, "simdev: can't unregister: copies there have not ended, or a graph has "
              "them: ", pending);
  g_pinned_bytes.registered -= found->second.locked;
  g_registered.erase(found);
}

std::shared_ptr<void> HoldRegistered(const void* pointer) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  auto found = RegisteredAt(pointer);
  return found == g_registered.end() ? nullptr : found->second.held;
}

void ThrowKeptError() {
  std::string error;
  {
    std::lock_guard<std::mutex> lock(g_pinned_mutex);
    error.swap(g_kept_error);
  }
  TORCH_CHECK(error.empty(), "simdev: an earlier registration failed: ", error);
}

PinnedBytes GetPinnedBytes() {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  return g_pinned_bytes;
}

void SetPinnedLimit(int64_t bytes) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  g_pinned_limit = bytes;
}

void ResetMostRegistered() {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  g_pinned_bytes.most_registered = g_pinned_bytes.registered;
}

}  // namespace simdevice

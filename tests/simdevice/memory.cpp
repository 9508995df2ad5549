#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "streams.h"

namespace simdevice {
namespace {

constexpr int kPoison = 0xFF;
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// The bytes belong to a CPU storage. The block holds one reference to it, and so does every queued
// task, through its CPU aliases: the memory goes when the last of them does.
struct Block {
  c10::Storage bytes;
  c10::Stream home;
  std::shared_ptr<Capture> capture;  // the one that it was allocated in, if any
  std::set<c10::StreamId> users;
  char* begin() const { return static_cast<char*>(bytes.mutable_data()); }
};

std::mutex g_block_mutex;  // guards the next two
// Live blocks by address: a storage may be a slice of a block, and then knows only its bytes.
auto& g_blocks = *new std::map<const char*, Block*>();
std::array<c10::CachingDeviceAllocator::DeviceStats, kDevices> g_stats;
std::atomic<int64_t> g_device_limit{-1};

constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Null if the pointer lies in no live block. A block's end belongs to it: empty slices are there.
Block* FindBlock(const void* pointer) {
  std::lock_guard<std::mutex> lock(g_block_mutex);
  auto* address = static_cast<const char*>(pointer);
  auto after = g_blocks.upper_bound(address);
  if (after == g_blocks.begin()) return nullptr;
  Block* block = std::prev(after)->second;
  return address <= block->begin() + block->bytes.nbytes() ? block : nullptr;
}

Work Poison(const c10::Storage& bytes) {
  return [bytes](int) { std::memset(bytes.mutable_data(), kPoison, bytes.nbytes()); };
}

void FreeBlock(void* context) {
  std::unique_ptr<Block> block(static_cast<Block*>(context));
  {
    std::lock_guard<std::mutex> lock(g_block_mutex);
    g_blocks.erase(block->begin());
    auto& stats = g_stats[block->home.device_index()];
    stats.allocated_bytes[kAll].decrease(block->bytes.nbytes());
    stats.allocation[kAll].decrease(1);
  }
  if (block->capture == nullptr) {
    Queue* home = QueueOf(block->home);
    for (c10::StreamId user : block->users) {
      Wait(home, Record(QueueOf(MakeStream(block->home.device_index(), user))));
    }
    IssueUncaptured(block->home, "free", Poison(block->bytes));
  } else if (block->capture == CaptureOf(block->home) && block->capture->healthy()) {
    // Each replay uses the memory again, from here on for something else.
    Issue(block->home, Kind::kOther, "free", Poison(block->bytes));
  }  // else the memory stays the graph's
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::Stream stream = CurrentStream(-1);
    const auto device = stream.device_index();
    {
      std::lock_guard<std::mutex> lock(g_block_mutex);
      auto& stats = g_stats[device];
      const int64_t used = stats.allocated_bytes[kAll].current;
      if (g_device_limit >= 0 && used + static_cast<int64_t>(size) > g_device_limit) {
        ++stats.num_ooms;
        TORCH_CHECK_WITH(OutOfMemoryError, false, "simdev:", static_cast<int>(device),
                         ": out of memory: ", size, " bytes asked, ", used, " of ", g_device_limit,
                         " in use");
      }
      stats.allocated_bytes[kAll].increase(size);
      stats.allocation[kAll].increase(1);
    }
    void* data = c10::alloc_cpu(size + 1);  // + 1: an empty tensor has a block too
    std::memset(data, kPoison, size);
    c10::Storage bytes(
        c10::Storage::use_byte_size_t(), size,
        c10::InefficientStdFunctionContext::makeDataPtr(data, c10::free_cpu, at::kCPU));
    auto* block = new Block{bytes, stream, CaptureOf(stream), {}};
    {
      std::lock_guard<std::mutex> lock(g_block_mutex);
      g_blocks[block->begin()] = block;
    }
    c10::DataPtr pointer(data, block, &FreeBlock, stream.device());
    Issue(stream, Kind::kOther, "allocate", Poison(bytes));
    return pointer;
  }

  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    RecordStream(pointer, stream);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // there is none
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(g_block_mutex);
    return g_stats.at(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(g_block_mutex);
    g_stats.at(device).allocated_bytes[kAll].reset_accumulated();
    g_stats.at(device).allocation[kAll].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(g_block_mutex);
    g_stats.at(device).allocated_bytes[kAll].reset_peak();
    g_stats.at(device).allocation[kAll].reset_peak();
  }
};

auto& g_device_memory = *new DeviceAllocator();
const bool g_device_memory_registered = [] {
  c10::SetAllocator(kType, &g_device_memory);
  return true;
}();

}  // namespace

c10::Allocator* DeviceMemory() { return &g_device_memory; }

void SetDeviceLimit(int64_t bytes) { g_device_limit = bytes; }

void RecordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  Block* block = FindBlock(pointer.get());
  TORCH_CHECK(block != nullptr, "simdev: record_stream() of memory that is not the device's");
  TORCH_CHECK(block->home.device_index() == stream.device_index(),
              "simdev: record_stream() of a stream of another device");
  std::lock_guard<std::mutex> lock(g_block_mutex);
  block->users.insert(stream.id());
}

c10::Device DeviceOfPointer(const void* pointer) {
  Block* block = FindBlock(pointer);
  TORCH_CHECK(block != nullptr, "simdev: the pointer is not into device memory");
  return block->home.device();
}

at::Tensor TensorOver(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like,
                      caffe2::TypeMeta dtype) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  return tensor;
}

at::Tensor CpuAlias(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys(c10::DispatchKey::CPU);
  if (tensor.is_cpu()) return TensorOver(tensor.storage(), keys, tensor, tensor.dtype());
  const void* data = tensor.storage().data();
  Block* block = FindBlock(data);
  if (block == nullptr && tensor.numel() == 0) {
    return at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  }
  TORCH_CHECK(block != nullptr, "simdev: a tensor's storage is not in device memory");
  // All aliases of a block have one storage, so that CPU kernels see overlaps as they are.
  at::Tensor alias = TensorOver(block->bytes, keys, tensor, tensor.dtype());
  const auto offset = static_cast<const char*>(data) - block->begin();
  const auto item = static_cast<std::ptrdiff_t>(tensor.element_size());
  TORCH_CHECK(offset % item == 0, "simdev: misaligned address: a tensor of ", tensor.dtype(),
              " begins ", offset, " bytes into its block");
  alias.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset() + offset / item);
  return alias;
}

at::Tensor EmptyOnDevice(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(size, stride, &g_device_memory, kKeys, dtype);
}

void ResizeStorage(c10::StorageImpl* storage, size_t bytes) {
  const c10::DeviceGuard guard(storage->device());
  c10::DataPtr pointer = g_device_memory.allocate(bytes);
  Block* from = FindBlock(storage->data());
  if (from != nullptr && storage->nbytes() > 0) {
    const auto offset = static_cast<const char*>(storage->data()) - from->begin();
    const size_t kept = std::min(bytes, storage->nbytes());
    Issue(CurrentStream(-1), Kind::kCopy, "resize",
          [from = from->bytes, offset, to = FindBlock(pointer.get())->bytes, kept](int) {
            std::memcpy(to.mutable_data(), static_cast<const char*>(from.data()) + offset, kept);
          });
  }
  storage->set_data_ptr_noswap(std::move(pointer));
  storage->set_nbytes(bytes);
}

void SetShape(const at::Tensor& tensor, const at::Tensor& like) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const size_t needed = at::detail::computeStorageNbytes(
      like.sizes(), like.strides(), tensor.element_size(), tensor.storage_offset());
  if (tensor.storage().nbytes() < needed) {
    ResizeStorage(impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  impl->set_sizes_and_strides(like.sizes(), like.strides());
}

}  // namespace simdevice

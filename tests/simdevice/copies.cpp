#include "copies.h"

#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <cstring>
#include <string>

#include "counters.h"
#include "memory.h"
#include "pinned.h"
#include "streams.h"

namespace simdevice {
namespace {

using at::Tensor;

std::atomic<int64_t> g_latency{0};    // microseconds
std::atomic<int64_t> g_bandwidth{0};  // bytes a second; 0: copies take no time but their delays

Tensor AliasWithFlags(const Tensor& tensor) {
  Tensor alias = CpuAlias(tensor);
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

bool IsPlain(const Tensor& source, const Tensor& target) {
  return source.is_conj() == target.is_conj() && source.is_neg() == target.is_neg() &&
         source.dtype() == target.dtype() && source.sizes() == target.sizes() &&
         source.strides() == target.strides() && source.is_non_overlapping_and_dense();
}

int64_t LinkTime(size_t bytes) {
  const int64_t bandwidth = g_bandwidth;
  if (bandwidth == 0) return 0;
  return g_latency + static_cast<int64_t>(1e6 * static_cast<double>(bytes) / bandwidth);
}

Work Transfer(const Tensor& source, const Tensor& target, bool plain, bool upload) {
  return [source, target, plain, upload](int pause) {
    const int64_t time = upload ? LinkTime(source.nbytes()) : 0;
    if ((pause == 0 && time == 0) || !plain) {
      Take(time);
      target.copy_(source);
      return;
    }
    const size_t half = source.nbytes() / 2;
    auto* to = static_cast<char*>(target.data_ptr());
    auto* from = static_cast<const char*>(source.data_ptr());
    std::memcpy(to, from, half);
    Pause(pause);
    Take(time);  // a transfer in progress: half new, half old
    std::memcpy(to + half, from + half, source.nbytes() - half);
  };
}

void CountCopy(const char* direction, const Tensor& target) {
  Counters::Get().Add(std::string("copies ") + direction);
  Counters::Get().Add(std::string("bytes ") + direction, static_cast<int64_t>(target.nbytes()));
}

void CopyBetweenDevices(const Tensor& source, const Tensor& target, Work work) {
  const c10::Stream from = CurrentStream(source.device().index());
  const c10::Stream to = CurrentStream(target.device().index());
  Order(to, from);
  Issue(from, Kind::kCopy, "copy between devices", std::move(work));
  Order(from, to);
}

}  // namespace

Tensor Copy(const Tensor& source, const Tensor& target, bool non_blocking) {
  if (target.numel() == 0) return target;
  Tensor from = AliasWithFlags(source);
  const Tensor to = AliasWithFlags(target);
  const bool plain = IsPlain(from, to);
  const bool upload = source.is_cpu();
  const bool download = target.is_cpu();
  CountCopy(upload ? "host to device" : download ? "device to host" : "on devices", target);
  if (!upload && !download) {
    if (source.device() != target.device()) {
      CopyBetweenDevices(source, target, Transfer(from, to, plain, false));
    } else {
      Issue(CurrentStream(source.device().index()), Kind::kCopy, "copy",
            Transfer(from, to, plain, false));
    }
    return target;
  }

  const c10::Stream stream = CurrentStream((upload ? target : source).device().index());
  const bool pinned = IsPinned((upload ? from : to).data_ptr());
  const bool later = non_blocking && pinned && plain;
  const bool staged = non_blocking && upload && !later;
  if (!later) {
    if (auto capture = CaptureOf(stream)) {
      capture->Refuse(pinned ? "a copy that makes the host wait"
                             : "a copy from or to pageable memory");
    }
  }
  if (staged) from = from.clone();
  Work work = Transfer(from, to, plain, upload);
  if (pinned) {
    work = [work, held = HoldRegistered((upload ? from : to).data_ptr())](int pause) {
      work(pause);
    };
  }
  Issue(stream, Kind::kCopy, upload ? "copy host to device" : "copy device to host",
        std::move(work));
  if (!later && !staged) SynchronizeStream(stream);
  return target;
}

void SetLink(int64_t latency, int64_t bandwidth) {
  g_latency = latency;
  g_bandwidth = bandwidth;
}

}  // namespace simdevice

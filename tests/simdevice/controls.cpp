// What device.py calls, as torch.ops.simdevice: operators without tensors. Not pybind11, whose
// headers would make up a quarter of the build.
#include <torch/library.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "copies.h"
#include "counters.h"
#include "memory.h"
#include "operators.h"
#include "pinned.h"
#include "scheduler.h"
#include "streams.h"

namespace simdevice {
namespace {

Timing MakeTiming(bool steps, int64_t seed, const std::string& adversary, int64_t microseconds,
                  bool torn) {
  Timing timing{steps, static_cast<uint64_t>(seed), Adversary::kRandom,
                static_cast<int>(microseconds), torn};
  if (adversary == "compute") timing.adversary = Adversary::kCompute;
  if (adversary == "copies") timing.adversary = Adversary::kCopies;
  return timing;
}

using TimingTuple = std::tuple<bool, int64_t, std::string, int64_t, bool>;

TimingTuple ReadTiming() {
  const Timing timing = GetTiming();
  const char* adversary = timing.adversary == Adversary::kCompute  ? "compute"
                          : timing.adversary == Adversary::kCopies ? "copies"
                                                                   : "random";
  return {timing.steps, static_cast<int64_t>(timing.seed), adversary, timing.microseconds,
          timing.torn};
}

// A held stream goes no further until it is released.
std::mutex g_holds_mutex;
auto& g_holds = *new std::map<int64_t, MarkPointer>();

int64_t HoldStream(int64_t device, int64_t stream) {
  auto mark = std::make_shared<Mark>();
  Wait(QueueOf(MakeStream(static_cast<c10::DeviceIndex>(device), stream)), mark);
  static int64_t next = 0;
  std::lock_guard<std::mutex> lock(g_holds_mutex);
  g_holds[next] = mark;
  return next++;
}

void ReleaseHold(int64_t hold) {
  std::lock_guard<std::mutex> lock(g_holds_mutex);
  g_holds.at(hold)->Set();
  g_holds.erase(hold);
}

c10::Dict<std::string, int64_t> ReadCounters() {
  c10::Dict<std::string, int64_t> result;
  for (const auto& [name, value] : Counters::Get().Values()) result.insert(name, value);
  return result;
}

TORCH_LIBRARY(simdevice, library) {
  library.def("set_timing", [](bool steps, int64_t seed, std::string adversary,
                               int64_t microseconds, bool torn) {
    SetTiming(MakeTiming(steps, seed, adversary, microseconds, torn));
  });
  library.def("set_link", &SetLink);
  library.def("busy", [](int64_t microseconds) {
    Issue(CurrentStream(-1), Kind::kCompute, "busy", [microseconds](int pause) {
      Pause(pause);
      Take(microseconds);
    });
  });
  library.def("timing", &ReadTiming);
  library.def("set_patience", [](double seconds) { SetPatience(seconds); });
  library.def("drain", [] { Drain(); });
  library.def("hold", &HoldStream);
  library.def("release", &ReleaseHold);
  library.def("counters", &ReadCounters);
  library.def("reset_counters", [] {
    Counters::Get().Reset();
    ResetMostRegistered();
  });
  library.def("pinned_bytes", [] {
    const PinnedBytes bytes = GetPinnedBytes();
    return std::make_tuple(bytes.asked, bytes.reserved, bytes.registered, bytes.most_registered);
  });
  library.def("register_host", &RegisterHost);
  library.def("unregister_host", &UnregisterHost);
  library.def("set_pinned_limit", [](int64_t bytes) { SetPinnedLimit(bytes); });
  library.def("set_device_limit", [](int64_t bytes) { SetDeviceLimit(bytes); });
  library.def("allow_shallow_copies", [](bool on) { AllowShallowCopies(on); });
  library.def("devices", [] { return static_cast<int64_t>(kDevices); });
}

}  // namespace
}  // namespace simdevice

// Captured work as a graph: torch.accelerator.Graph for this device.
//
// A replay gives each captured stream's part a queue of its own, but for the capture's first
// stream: its part goes to the replaying stream. So the forked parts are ordered by the captured
// events alone, and what that stream gets after the replay waits for the whole graph, since the
// forked parts were joined.
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <fstream>
#include <mutex>
#include <vector>

#include "capture.h"
#include "streams.h"

namespace simdevice {
namespace {

// Queues for forked parts. Those that a graph gave back are used again.
std::mutex g_lanes_mutex;
auto& g_lanes = *new std::vector<Queue*>();

Queue* TakeLane() {
  std::lock_guard<std::mutex> lock(g_lanes_mutex);
  for (size_t i = 0; i < g_lanes.size(); ++i) {
    if (!Idle(g_lanes[i])) continue;
    Queue* lane = g_lanes[i];
    g_lanes.erase(g_lanes.begin() + static_cast<std::ptrdiff_t>(i));
    return lane;
  }
  return NewQueue("a forked part of a graph");
}

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& arguments) { (void)arguments; }
  ~Graph() override { reset(); }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    (void)pool;  // memory of a capture is never handed out again
    (void)mode;
    TORCH_CHECK(capture_ == nullptr, "simdev: the graph holds a capture; reset() it first");
    capture_ = Capture::Begin(CurrentStream(-1));
  }

  void capture_end() override {
    TORCH_CHECK(capture_ != nullptr && !capture_->ended(), "simdev: no capture was begun");
    try {
      capture_->End(CurrentStream(-1));
    } catch (...) {
      capture_->GiveUp();  // nothing that could be replayed
      capture_ = nullptr;
      throw;
    }
  }

  void instantiate() override {}

  void replay() override {
    TORCH_CHECK(capture_ != nullptr && capture_->ended(), "simdev: the graph has no capture");
    const c10::Stream stream = CurrentStream(-1);
    TORCH_CHECK(stream.device_index() == capture_->origin().device_index(),
                "simdev: the graph was captured on another device");
    if (auto outer = CaptureOf(stream)) outer->Refuse("a replay");
    std::vector<Queue*> queues{QueueOf(stream)};
    while (lanes_.size() + 1 < capture_->lanes()) lanes_.push_back(TakeLane());
    queues.insert(queues.end(), lanes_.begin(), lanes_.end());

    // A graph does not run beside itself: its memory is its own from replay to replay.
    if (last_ != nullptr) Wait(queues[0], last_);
    std::vector<MarkPointer> marks(capture_->records());
    for (const CaptureStep& step : capture_->steps()) {
      switch (step.what) {
        case CaptureStep::What::kWork:
          Push(queues[step.lane], {step.kind, step.name, step.work, nullptr, nullptr});
          break;
        case CaptureStep::What::kRecord:
          marks[step.number] = Record(queues[step.lane]);
          break;
        case CaptureStep::What::kWait:
          Wait(queues[step.lane], marks[step.number]);
          break;
      }
    }
    last_ = Record(queues[0]);
  }

  void reset() override {
    if (capture_ != nullptr && !capture_->ended()) {
      try {
        capture_->End(capture_->origin());
      } catch (const c10::Error&) {  // it is given up in any case
      }
    }
    if (capture_ != nullptr) capture_->GiveUp();
    capture_ = nullptr;
    last_ = nullptr;
    std::lock_guard<std::mutex> lock(g_lanes_mutex);
    g_lanes.insert(g_lanes.end(), lanes_.begin(), lanes_.end());
    lanes_.clear();
  }

  at::MempoolId_t pool() const override {
    return {capture_ == nullptr ? 0 : capture_->id(), 0};
  }

  void enable_debug_mode() override {}

  // The steps in the order of their capture, one a line.
  void debug_dump(const std::string& path) override {
    TORCH_CHECK(capture_ != nullptr, "simdev: the graph has no capture");
    std::ofstream file(path);
    for (const CaptureStep& step : capture_->steps()) {
      file << "part " << step.lane << ": " << step.name;
      if (step.what != CaptureStep::What::kWork) file << " " << step.number;
      file << "\n";
    }
  }

 private:
  std::shared_ptr<Capture> capture_;
  std::vector<Queue*> lanes_;
  MarkPointer last_;  // the end of the latest replay
};

}  // namespace
}  // namespace simdevice

namespace at {
// Under the name that device.py gives PrivateUse1.
REGISTER_GRAPH_IMPL(SIMDEV, simdevice::Graph)
}  // namespace at

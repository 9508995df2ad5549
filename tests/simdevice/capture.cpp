#include "capture.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace simdevice {
namespace {

using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
Key KeyOf(c10::Stream stream) { return {stream.device_index(), stream.id()}; }

std::atomic<int> g_captured{0};  // how many are captured; usually none
std::mutex g_capture_mutex;             // guards the map
auto& g_captures = *new std::map<Key, std::shared_ptr<Capture>>();

void Enter(c10::Stream stream, std::shared_ptr<Capture> capture) {
  std::lock_guard<std::mutex> lock(g_capture_mutex);
  g_captures[KeyOf(stream)] = std::move(capture);
  g_captured = static_cast<int>(g_captures.size());
}

void Leave(c10::Stream stream) {
  std::lock_guard<std::mutex> lock(g_capture_mutex);
  g_captures.erase(KeyOf(stream));
  g_captured = static_cast<int>(g_captures.size());
}

void Merge(Clock* clock, const Clock& other) {
  if (clock->size() < other.size()) clock->resize(other.size(), 0);
  for (size_t i = 0; i < other.size(); ++i) (*clock)[i] = std::max((*clock)[i], other[i]);
}

size_t At(const Clock& clock, size_t lane) { return lane < clock.size() ? clock[lane] : 0; }

}  // namespace

std::shared_ptr<Capture> CaptureOf(c10::Stream stream) {
  if (g_captured == 0) return nullptr;
  std::lock_guard<std::mutex> lock(g_capture_mutex);
  auto found = g_captures.find(KeyOf(stream));
  return found == g_captures.end() ? nullptr : found->second;
}

std::shared_ptr<Capture> Capture::Begin(c10::Stream stream) {
  TORCH_CHECK(stream.id() != 0,
              "simdev: a capture can't begin on the default stream; make one current first");
  TORCH_CHECK(CaptureOf(stream) == nullptr, "simdev: the stream is being captured already");
  static std::atomic<uint64_t> next{1};
  std::shared_ptr<Capture> capture(new Capture());
  capture->id_ = next++;
  capture->lanes_.push_back(stream);
  capture->clocks_.emplace_back(1, 0);
  Enter(stream, capture);
  return capture;
}

void Capture::End(c10::Stream stream) {
  for (c10::Stream lane : lanes_) Leave(lane);
  ended_ = true;
  CheckHealthy();
  TORCH_CHECK(stream == origin(), "simdev: a capture ends on the stream that it began on");
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    TORCH_CHECK(At(clocks_[0], lane) == clocks_[lane][lane], "simdev: stream ", lanes_[lane].id(),
                " was forked into the capture and not joined: before the end the capture's stream "
                "must wait for an event recorded after its last work");
  }
}

void Capture::Refuse(const std::string& why) {
  if (fault_.empty()) fault_ = why;
  TORCH_CHECK(false, "simdev: not allowed in a capture: ", why);
}

void Capture::CheckHealthy() const {
  TORCH_CHECK(fault_.empty(), "simdev: the capture is invalid since an earlier fault: ", fault_);
}

size_t Capture::LaneOf(c10::Stream stream) const {
  return std::find(lanes_.begin(), lanes_.end(), stream) - lanes_.begin();
}

void Capture::Advance(size_t lane) {
  if (clocks_[lane].size() <= lane) clocks_[lane].resize(lane + 1, 0);
  ++clocks_[lane][lane];
}

void Capture::Add(c10::Stream stream, Kind kind, const std::string& name, WorkPointer work) {
  CheckHealthy();
  const size_t lane = LaneOf(stream);
  // What memory needs is no work: a tensor may die after the stream was joined.
  if (kind != Kind::kOther) Advance(lane);
  steps_.push_back({CaptureStep::What::kWork, lane, 0, kind, name, std::move(work)});
}

CapturePoint Capture::Record(c10::Stream stream) {
  CheckHealthy();
  const size_t lane = LaneOf(stream);
  steps_.push_back({CaptureStep::What::kRecord, lane, records_, Kind::kOther, "record", nullptr});
  return {records_++, clocks_[lane]};
}

void Capture::Wait(c10::Stream stream, const CapturePoint& point, Capture* current) {
  const std::string who = "stream " + std::to_string(stream.id());
  if (ended_ && current == nullptr) {
    TORCH_CHECK(false, "simdev: ", who, " waits for an event of a capture that has ended");
  }
  if (current != nullptr && current != this) {
    current->Refuse(who + " waits for an event of another capture");
  }
  CheckHealthy();
  size_t lane = LaneOf(stream);
  if (current == nullptr) {  // the stream is forked into the capture
    if (stream.id() == 0) Refuse("the default stream waits for an event of the capture");
    if (lane == lanes_.size()) {
      lanes_.push_back(stream);
      clocks_.emplace_back(lanes_.size(), 0);
    }
    Enter(stream, shared_from_this());
  }
  Merge(&clocks_[lane], point.clock);
  steps_.push_back({CaptureStep::What::kWait, lane, point.number, Kind::kOther, "wait", nullptr});
}

}  // namespace simdevice

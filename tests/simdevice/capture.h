// What a stream capture records: the work given to a stream and to the streams forked from it by
// events, with the order that streams and events imply, and no other.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler.h"

namespace simdevice {

// How many steps of each lane something comes after.
using Clock = std::vector<size_t>;

// A record inside a capture: its number, and what it comes after.
struct CapturePoint {
  size_t number = 0;
  Clock clock;
};

// One stream's part of a capture is a lane. Lane 0 is the stream that the capture began on.
struct CaptureStep {
  enum class What { kWork, kRecord, kWait };
  What what;
  size_t lane;
  size_t number = 0;  // of the record that is made or waited for
  Kind kind = Kind::kOther;
  std::string name;
  WorkPointer work;
};

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  static std::shared_ptr<Capture> Begin(c10::Stream stream);
  // Ends the capture whatever happens. Throws if it was at fault, or is not joined.
  void End(c10::Stream stream);
  bool ended() const { return ended_; }
  bool healthy() const { return fault_.empty(); }

  void Add(c10::Stream stream, Kind kind, const std::string& name, WorkPointer work);
  CapturePoint Record(c10::Stream stream);
  // current: the capture that the waiting stream is in, or null. It then joins this one.
  void Wait(c10::Stream stream, const CapturePoint& point, Capture* current);

  // It is not replayed any more: what its steps hold is given up. Memory that it allocated stays.
  void GiveUp() { steps_.clear(); }

  // Throws, and the capture can only end in the same error from then on.
  [[noreturn]] void Refuse(const std::string& why);

  const std::vector<CaptureStep>& steps() const { return steps_; }
  size_t lanes() const { return lanes_.size(); }
  size_t records() const { return records_; }
  c10::Stream origin() const { return lanes_.front(); }
  uint64_t id() const { return id_; }

 private:
  Capture() = default;
  size_t LaneOf(c10::Stream stream) const;
  void CheckHealthy() const;
  void Advance(size_t lane);

  std::vector<c10::Stream> lanes_;
  std::vector<Clock> clocks_;  // by lane, of its last step
  std::vector<CaptureStep> steps_;
  size_t records_ = 0;
  std::string fault_;
  bool ended_ = false;
  uint64_t id_ = 0;
};

// The capture that a stream is in, or null.
std::shared_ptr<Capture> CaptureOf(c10::Stream stream);

}  // namespace simdevice

// What queues and the host wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace simdevice {

// One record of an event. A wait holds the mark that was the event's last at the time of the call,
// so a later record of the same event neither lengthens nor shortens that wait.
class Mark {
 public:
  void Set();
  void Wait();
  bool Query();
  bool WaitFor(std::chrono::milliseconds time);  // false: not set in that time
  std::chrono::steady_clock::time_point time();  // when it was set

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  bool done_ = false;
  std::chrono::steady_clock::time_point time_;
};
using MarkPointer = std::shared_ptr<Mark>;


}  // namespace simdevice

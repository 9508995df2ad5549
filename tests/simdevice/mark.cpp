#include "mark.h"

namespace simdevice {

void Mark::Set() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    time_ = std::chrono::steady_clock::now();
  }
  set_.notify_all();
}

void Mark::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  set_.wait(lock, [this] { return done_; });
}

bool Mark::Query() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

bool Mark::WaitFor(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  return set_.wait_for(lock, time, [this] { return done_; });
}

std::chrono::steady_clock::time_point Mark::time() {
  std::lock_guard<std::mutex> lock(mutex_);
  return time_;
}

}  // namespace simdevice

// Numbers that tests ask for: how many kernels and copies there were, and how many bytes moved.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace simdevice {

class Counters {
 public:
  static Counters& Get() {
    static auto* counters = new Counters();  // never destroyed: threads may outlive main
    return *counters;
  }
  void Add(const std::string& name, int64_t by = 1) {
    std::lock_guard<std::mutex> lock(mutex_);
    values_[name] += by;
  }
  std::map<std::string, int64_t> Values() {
    std::lock_guard<std::mutex> lock(mutex_);
    return values_;
  }
  void Reset() {
    std::lock_guard<std::mutex> lock(mutex_);
    values_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> values_;
};

}  // namespace simdevice

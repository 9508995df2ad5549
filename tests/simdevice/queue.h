// A queue's inside, for those who run queues and those who report on them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "scheduler.h"

namespace simdevice {

using Lock = std::lock_guard<std::mutex>;

class Queue {
 public:
  explicit Queue(std::string name) : name(std::move(name)) {}

  const std::string name;
  std::mutex mutex;  // guards the rest
  std::condition_variable filled;
  std::deque<Task> tasks;
  std::atomic<size_t> length{0};  // of tasks; needs no lock
  bool busy = false;     // a task was taken from the front and has not ended
  bool started = false;  // it has a worker
  // The order of first use since the seed was set. Choices are made by rank, not by the stream's
  // number: which streams of the pool a program gets hangs on what ran before it.
  int64_t rank = -1;
  std::mt19937_64 random;
};

std::vector<Queue*> AllQueues();

// Steps: run one task of a queue that is chosen by the seed. False: none can run.
bool Step();

bool InsideTask();     // whether this thread is inside of a task
int64_t EndedTasks();  // to tell slow from stuck
void NoteFailure(const std::string& name, const char* what);

}  // namespace simdevice

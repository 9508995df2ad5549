// How the host waits: what it is told then, and what keeps it from waiting for ever.
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "interpreter.h"
#include "queue.h"

namespace simdevice {
namespace {

std::atomic<double> g_patience{60};
std::mutex g_failure_mutex;  // guards the next
auto& g_failure = *new std::string();

std::string WhoWaits() {
  std::ostringstream text;
  for (Queue* queue : AllQueues()) {
    Lock lock(queue->mutex);
    if (queue->tasks.empty()) continue;
    const Task& first = queue->tasks.front();
    text << "\n  " << queue->name << ": " << queue->tasks.size() << " tasks; the first is "
         << first.name << (first.after != nullptr ? ", after a mark that nothing sets" : "");
  }
  return text.str();
}

}  // namespace

void NoteFailure(const std::string& name, const char* what) {
  Lock lock(g_failure_mutex);
  if (g_failure.empty()) g_failure = name + ": " + what;
}

void SetPatience(double seconds) { g_patience = seconds; }

void HostWait(const MarkPointer& mark) {
  TORCH_CHECK(!InsideTask(), "simdev: a kernel on a queue may not wait for the device");
  {
    WithoutInterpreter without;
    if (GetTiming().steps) {
      while (!mark->Query()) {
        TORCH_CHECK(Step() || mark->Query(), "simdev: deadlock: no queue can go on", WhoWaits());
      }
    } else {
      const auto tick = std::chrono::milliseconds(20);
      int64_t ended = EndedTasks();
      auto since = std::chrono::steady_clock::now();
      while (!mark->WaitFor(tick)) {
        const auto now = std::chrono::steady_clock::now();
        if (ended != EndedTasks()) {
          ended = EndedTasks();
          since = now;
        }
        TORCH_CHECK(std::chrono::duration<double>(now - since).count() < g_patience,
                    "simdev: deadlock: no task ended in ", g_patience, " s", WhoWaits());
      }
    }
  }
  std::string error;
  {
    Lock lock(g_failure_mutex);
    error.swap(g_failure);
  }
  TORCH_CHECK(error.empty(), "simdev: an earlier asynchronous operation failed: ", error);
}

void Drain() {
  const std::vector<Queue*> queues = AllQueues();
  std::exception_ptr first;
  for (size_t i = 0; i < queues.size(); ++i) {
    if (i > 0 && Idle(queues[i])) continue;  // at least one wait: it brings errors
    try {
      HostWait(Record(queues[i]));
    } catch (const c10::Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace simdevice

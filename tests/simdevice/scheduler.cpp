#include "scheduler.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "interpreter.h"
#include "queue.h"

namespace simdevice {

namespace {

std::recursive_mutex g_step_mutex;  // guards the next four, and the running of steps
Timing g_timing;
std::mt19937_64 g_random;
int64_t g_ranks = 0;
auto& g_queues = *new std::vector<Queue*>();

std::atomic<bool> g_steps{true};
std::atomic<int64_t> g_ended{0};  // tasks, to tell slow from stuck
thread_local int t_inside = 0;  // how many tasks this thread is inside of

// Holds g_step_mutex. Never waits for it with the interpreter's lock in hand: who has the mutex may
// be running a kernel that is written in Python.
class StepLock {
 public:
  StepLock() {
    if (g_step_mutex.try_lock()) return;
    WithoutInterpreter without;
    g_step_mutex.lock();
  }
  ~StepLock() { g_step_mutex.unlock(); }
  StepLock(const StepLock&) = delete;
  StepLock& operator=(const StepLock&) = delete;
};

// Runs the first task. `busy` is set: nobody else takes from the front.
void RunFront(Queue* queue) {
  Task task;
  {
    Lock lock(queue->mutex);
    task = std::move(queue->tasks.front());
    queue->tasks.pop_front();
    queue->length = queue->tasks.size();
  }
  if (task.work != nullptr) {
    c10::InferenceMode no_autograd(true);  // the caller's no_grad is that thread's, not this one's
    ++t_inside;
    try {  // an exception that left a thread would end the process
      (*task.work)(task.middle);
    } catch (const c10::Error& error) {
      NoteFailure(task.name, error.what_without_backtrace());
    } catch (const std::exception& error) {
      NoteFailure(task.name, error.what());
    }
    --t_inside;
  }
  task.work = nullptr;  // drop its memory, and look idle, before anyone is told that it is done
  {
    Lock lock(queue->mutex);
    queue->busy = false;
  }
  if (task.done != nullptr) task.done->Set();
  ++g_ended;
}

void RunWorker(Queue* queue) {
  at::set_num_threads(1);  // for this thread's kernels: how work is split changes the rounding
  for (;;) {
    MarkPointer after;
    int before = 0;
    {
      std::unique_lock<std::mutex> lock(queue->mutex);
      queue->filled.wait(lock, [queue] { return !queue->tasks.empty() && !g_steps; });
      queue->busy = true;
      after = queue->tasks.front().after;
      before = queue->tasks.front().before;
    }
    if (after != nullptr) after->Wait();
    std::this_thread::sleep_for(std::chrono::microseconds(before));
    RunFront(queue);
  }
}

// Whether the first task may start; null if not. Sets `busy` if it is taken.
enum class Front { kNone, kWork, kOther };
Front LookAtFront(Queue* queue, Kind* kind) {
  if (queue->length == 0) return Front::kNone;
  Lock lock(queue->mutex);
  if (queue->busy || queue->tasks.empty()) return Front::kNone;
  const Task& task = queue->tasks.front();
  if (task.after != nullptr && !task.after->Query()) return Front::kNone;
  *kind = task.kind;
  if (task.kind != Kind::kOther) return Front::kWork;
  queue->busy = true;
  return Front::kOther;
}

// Steps: let everything happen that is no choice.
void Settle() {
  Kind kind;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < g_queues.size(); ++i) {  // by index: a task may make a queue
      while (LookAtFront(g_queues[i], &kind) == Front::kOther) {
        RunFront(g_queues[i]);
        changed = true;
      }
    }
  }
}

// Drawn by the caller, in program order, so that a seed gives the same delays however threads run.
void DrawDelays(Queue* queue, Task* task) {
  if (queue->rank < 0) {
    queue->rank = g_ranks++;
    queue->random.seed(g_timing.seed * 1000003 + queue->rank);
  }
  const bool random = g_timing.adversary == Adversary::kRandom;
  const bool late = random ? queue->random() % 2 != 0
                           : (g_timing.adversary == Adversary::kCompute) ==
                                 (task->kind == Kind::kCompute);
  if (!late) return;
  const int longest = g_timing.microseconds;
  task->before = random ? static_cast<int>(queue->random() % (longest + 1)) : longest;
  if (g_timing.torn && queue->random() % 2 != 0) {
    task->middle = g_steps ? 1 + static_cast<int>(queue->random() % 8) : task->before / 2;
    task->before /= 2;
  }
}

}  // namespace

bool Step() {
  StepLock step_lock;
  Settle();
  std::vector<Queue*> ready;
  std::vector<Queue*> late;
  for (size_t i = 0; i < g_queues.size(); ++i) {
    Kind kind;
    if (LookAtFront(g_queues[i], &kind) != Front::kWork) continue;
    const bool is_late =
        g_timing.adversary == (kind == Kind::kCompute ? Adversary::kCompute : Adversary::kCopies);
    (is_late ? late : ready).push_back(g_queues[i]);
  }
  if (ready.empty()) ready = std::move(late);
  if (ready.empty()) return false;
  std::sort(ready.begin(), ready.end(), [](Queue* a, Queue* b) { return a->rank < b->rank; });
  Queue* chosen = ready[g_random() % ready.size()];
  {
    Lock lock(chosen->mutex);
    chosen->busy = true;
  }
  RunFront(chosen);
  Settle();
  return true;
}

bool InsideTask() { return t_inside > 0; }

int64_t EndedTasks() { return g_ended; }

std::vector<Queue*> AllQueues() {
  StepLock step_lock;
  return g_queues;
}

Queue* NewQueue(const std::string& name) {
  StepLock step_lock;
  g_queues.push_back(new Queue(name));
  return g_queues.back();
}

void Push(Queue* queue, Task task) {
  StepLock step_lock;
  const bool is_work = task.kind != Kind::kOther;
  {
    Lock lock(queue->mutex);
    if (is_work) DrawDelays(queue, &task);
    queue->tasks.push_back(std::move(task));
    queue->length = queue->tasks.size();
    if (!g_steps && !queue->started) {
      queue->started = true;
      std::thread(RunWorker, queue).detach();
    }
  }
  if (!g_steps) {
    queue->filled.notify_all();
    return;
  }
  if (t_inside > 0) return;  // the step that this task is inside of settles what follows
  Settle();
  if (!is_work || g_timing.adversary != Adversary::kRandom) return;
  while (g_random() % 2 != 0 && Step()) {  // the device is not always behind the host
  }
}

MarkPointer Record(Queue* queue) {
  auto mark = std::make_shared<Mark>();
  Push(queue, {Kind::kOther, "record", nullptr, nullptr, mark});
  return mark;
}

void Wait(Queue* queue, MarkPointer mark) {
  Push(queue, {Kind::kOther, "wait", nullptr, std::move(mark), nullptr});
}

bool Idle(Queue* queue) {
  Lock lock(queue->mutex);
  return queue->tasks.empty() && !queue->busy;
}

void Pause(int length) {
  if (!g_steps) {
    std::this_thread::sleep_for(std::chrono::microseconds(length));
    return;
  }
  while (length-- > 0 && Step()) {
  }
}

void Take(int64_t microseconds) {
  if (!g_steps) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

void Poll() {
  if (g_steps && t_inside == 0) Step();
}

void SetTiming(const Timing& timing) {
  Drain();
  StepLock step_lock;
  g_timing = timing;
  g_steps = timing.steps;
  g_random.seed(timing.seed);
  g_ranks = 0;
  for (Queue* queue : g_queues) {
    Lock lock(queue->mutex);
    queue->rank = -1;
  }
}

Timing GetTiming() {
  StepLock step_lock;
  return g_timing;
}

}  // namespace simdevice

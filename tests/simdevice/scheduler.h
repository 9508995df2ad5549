// Queues of tasks, and who runs them when. Knows nothing of devices, tensors or captures.
//
// A queue is first in, first out; queues are ordered among each other by marks alone. Two ways to
// run them:
//
//   steps    No threads and no sleeps. Whenever the host waits, and now and then when it enqueues,
//            a seeded choice is made among the queues whose next task may run. A slow task is one
//            that is not chosen. A seed gives one schedule, always the same.
//   threads  One worker a queue, which sleeps as the seed says: real concurrency.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mark.h"

namespace simdevice {

// kOther: what marks, waits and memory need. It is never late and never chosen: it happens as soon
// as its queue comes to it.
enum class Kind { kCompute, kCopy, kOther };

// Who is late. kCompute, kCopies: these run only when nothing else can.
enum class Adversary { kRandom, kCompute, kCopies };

struct Timing {
  bool steps = true;
  uint64_t seed = 0;
  Adversary adversary = Adversary::kRandom;
  int microseconds = 0;  // threads only: the longest delay
  bool torn = true;      // whether tasks may pause half way, so that others see half of their work
};

// The argument says how long to pause in the middle; see Pause(). Shared, since a graph runs the
// same work again and again.
using Work = std::function<void(int)>;
using WorkPointer = std::shared_ptr<const Work>;

struct Task {
  Kind kind = Kind::kOther;
  std::string name;
  WorkPointer work;   // may be null
  MarkPointer after;  // if any: the task may start when it is set
  MarkPointer done;   // if any: set when the task has ended
  int before = 0;     // delays, drawn by Push
  int middle = 0;
};

class Queue;
// Queues live as long as the process: a worker may hold one.
Queue* NewQueue(const std::string& name);

void Push(Queue* queue, Task task);
MarkPointer Record(Queue* queue);
void Wait(Queue* queue, MarkPointer mark);
bool Idle(Queue* queue);

// In the middle of a task: let other queues go on.
void Pause(int length);

// Threads only: the task under way takes so many microseconds more.
void Take(int64_t microseconds);

// A host that polls must see the device get on.
void Poll();

// Every wait of the host. Without the interpreter's lock, else a worker that needs it and the host
// wait for each other. Throws the first failure of a task since the last wait, and, instead of
// hanging, a report of who waits for what.
void HostWait(const MarkPointer& mark);

// Wait for every queue there is.
void Drain();

// Drains under the old timing, and throws, changing nothing, if that brings an error.
void SetTiming(const Timing& timing);
Timing GetTiming();

// Threads only: how long the host waits while no task ends before it reports a deadlock.
void SetPatience(double seconds);

}  // namespace simdevice

#include "streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "pinned.h"

namespace simdevice {
namespace {

thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kDevices> t_stream{};

std::string NameOf(c10::Stream stream) {
  return "stream " + std::to_string(stream.id()) + " of simdev:" +
         std::to_string(static_cast<int>(stream.device_index()));
}

std::vector<Queue*> MakeQueues() {
  std::vector<Queue*> queues;
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    for (c10::StreamId id = 0; id < kStreams; ++id) {
      queues.push_back(NewQueue(NameOf(MakeStream(device, id))));
    }
  }
  return queues;
}

// Inside a capture nothing happens, so there is nothing that the host could wait for.
void RefuseCaptured(const Event& event) {
  TORCH_CHECK(event.capture == nullptr,
              "simdev: the event was recorded in a capture; the host can't wait for it");
}

WorkPointer Share(Work work) { return std::make_shared<const Work>(std::move(work)); }

}  // namespace

c10::DeviceIndex CurrentDevice() { return t_device; }

void SetCurrentDevice(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "simdev: there is no device ",
              static_cast<int>(device), "; there are ", static_cast<int>(kDevices));
  t_device = device;
}

c10::Device DeviceOf(c10::DeviceIndex device) {
  if (device < 0) device = t_device;
  TORCH_CHECK(device < kDevices, "simdev: there is no device ", static_cast<int>(device),
              "; there are ", static_cast<int>(kDevices));
  return c10::Device(kType, device);
}

c10::Stream MakeStream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, DeviceOf(device), id);
}

c10::Stream CurrentStream(c10::DeviceIndex device) {
  const c10::Device real = DeviceOf(device);
  return MakeStream(real.index(), t_stream[real.index()]);
}

c10::Stream NextStream(c10::DeviceIndex device) {
  static std::array<std::atomic<int64_t>, kDevices> next{};
  const c10::Device real = DeviceOf(device);
  return MakeStream(real.index(), 1 + next[real.index()]++ % (kStreams - 1));
}

c10::Stream ExchangeStream(c10::Stream stream) {
  const c10::Stream previous = CurrentStream(stream.device_index());
  t_stream[stream.device_index()] = stream.id();
  return previous;
}

Queue* QueueOf(c10::Stream stream) {
  static auto* queues = new std::vector<Queue*>(MakeQueues());
  return queues->at(stream.device_index() * kStreams + stream.id());
}

void Issue(c10::Stream stream, Kind kind, const std::string& name, Work work) {
  if (kind == Kind::kCompute) ThrowKeptError();
  if (auto capture = CaptureOf(stream)) {
    capture->Add(stream, kind, name, Share(std::move(work)));
    return;
  }
  Push(QueueOf(stream), {kind, name, Share(std::move(work)), nullptr, nullptr});
}

void IssueUncaptured(c10::Stream stream, const std::string& name, Work work) {
  Push(QueueOf(stream), {Kind::kOther, name, Share(std::move(work)), nullptr, nullptr});
}

void RecordEvent(Event* event, c10::Stream stream) {
  TORCH_CHECK(event->device == stream.device_index(), "simdev: an event of simdev:",
              static_cast<int>(event->device), " was recorded on ", NameOf(stream),
              "; an event belongs to the device that recorded it first");
  event->capture = CaptureOf(stream);
  if (event->capture != nullptr) {
    event->point = event->capture->Record(stream);
  } else {
    event->mark = Record(QueueOf(stream));
  }
}

void WaitEvent(const Event& event, c10::Stream stream) {
  TORCH_CHECK(event.device == stream.device_index(), "simdev: ", NameOf(stream),
              " was to wait for an event of simdev:", static_cast<int>(event.device));
  auto capture = CaptureOf(stream);
  if (event.capture != nullptr) {
    event.capture->Wait(stream, event.point, capture.get());
  } else if (capture != nullptr) {
    capture->Refuse(NameOf(stream) + " waits for an event that was recorded outside the capture");
  } else {
    Wait(QueueOf(stream), event.mark);
  }
}

bool QueryEvent(const Event& event) {
  RefuseCaptured(event);
  if (!event.mark->Query()) Poll();
  return event.mark->Query();
}

void SynchronizeEvent(const Event& event) {
  RefuseCaptured(event);
  HostWait(event.mark);
}

double MillisecondsBetween(const Event& start, const Event& end) {
  RefuseCaptured(start);
  RefuseCaptured(end);
  return std::chrono::duration<double, std::milli>(end.mark->time() - start.mark->time()).count();
}

bool QueryStream(c10::Stream stream) {
  if (auto capture = CaptureOf(stream)) capture->Refuse("the host asks whether a stream is idle");
  if (!Idle(QueueOf(stream))) Poll();
  return Idle(QueueOf(stream));
}

void SynchronizeStream(c10::Stream stream) {
  if (auto capture = CaptureOf(stream)) {
    capture->Refuse("the host waits for " + NameOf(stream));
  }
  HostWait(Record(QueueOf(stream)));
}

void SynchronizeDevice(c10::DeviceIndex device) {
  const c10::Device real = DeviceOf(device);
  for (c10::StreamId id = 0; id < kStreams; ++id) {
    if (auto capture = CaptureOf(MakeStream(real.index(), id))) {
      capture->Refuse("the host waits for the device");
    }
  }
  for (c10::StreamId id = 0; id < kStreams; ++id) {
    const c10::Stream stream = MakeStream(real.index(), id);
    if (id == 0 || !Idle(QueueOf(stream))) SynchronizeStream(stream);
  }
}

void Order(c10::Stream first, c10::Stream second) {
  if (first == second) return;
  for (c10::Stream stream : {first, second}) {
    if (auto capture = CaptureOf(stream)) capture->Refuse("a copy between devices");
  }
  Wait(QueueOf(second), Record(QueueOf(first)));
}

}  // namespace simdevice

// Devices, their streams, and events: what a program means by them.
//
// Work is issued to a stream. If the stream is being captured, the work is recorded instead of
// run; see capture.h.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <string>

#include "capture.h"
#include "scheduler.h"

namespace simdevice {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;
// Stream 0 is a device's default stream; torch.Stream() hands out the others round robin, as CUDA
// does: two Streams that are far apart in a program may be the same one.
constexpr c10::StreamId kStreams = 33;

// The current device and streams are the thread's own.
c10::DeviceIndex CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex device);
c10::Device DeviceOf(c10::DeviceIndex device);  // -1: the current one
c10::Stream CurrentStream(c10::DeviceIndex device);
c10::Stream MakeStream(c10::DeviceIndex device, c10::StreamId id);
c10::Stream NextStream(c10::DeviceIndex device);
c10::Stream ExchangeStream(c10::Stream stream);  // returns the device's previous one
Queue* QueueOf(c10::Stream stream);

void Issue(c10::Stream stream, Kind kind, const std::string& name, Work work);
// Goes by what is captured: for memory from before the capture.
void IssueUncaptured(c10::Stream stream, const std::string& name, Work work);

// An event's latest record: a mark, or a place in a capture.
struct Event {
  c10::DeviceIndex device;
  MarkPointer mark;
  std::shared_ptr<Capture> capture;
  CapturePoint point;
};
void RecordEvent(Event* event, c10::Stream stream);
void WaitEvent(const Event& event, c10::Stream stream);
bool QueryEvent(const Event& event);
void SynchronizeEvent(const Event& event);
double MillisecondsBetween(const Event& start, const Event& end);

bool QueryStream(c10::Stream stream);
void SynchronizeStream(c10::Stream stream);
void SynchronizeDevice(c10::DeviceIndex device);

// The second stream goes on after what the first one has been given. Between devices too, where
// events can't: for copies.
void Order(c10::Stream first, c10::Stream second);

}  // namespace simdevice

// What torch asks of a back end, whatever its operators: devices, streams, events, pinned memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "counters.h"
#include "memory.h"
#include "pinned.h"
#include "streams.h"

namespace simdevice {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

Event* EventOf(void* event) { return static_cast<Event*>(event); }

struct DeviceGuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  Device getDevice() const override { return DeviceOf(-1); }
  Device exchangeDevice(Device device) const override {
    const Device previous = DeviceOf(-1);
    SetCurrentDevice(device.index());
    return previous;
  }
  void setDevice(Device device) const override { SetCurrentDevice(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDevices) SetCurrentDevice(device.index());
  }

  Stream getStream(Device device) const override { return CurrentStream(device.index()); }
  Stream getDefaultStream(Device device) const override { return MakeStream(device.index(), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return NextStream(device.index());
  }
  Stream getNewStream(Device device, int) const override {
    Counters::Get().Add("new streams");
    return NextStream(device.index());
  }
  Stream exchangeStream(Stream stream) const override { return ExchangeStream(stream); }
  bool queryStream(const Stream& stream) const override { return QueryStream(stream); }
  bool isStreamCapturing(const Stream& stream) const override {
    return CaptureOf(stream) != nullptr;
  }
  void synchronizeStream(const Stream& stream) const override { SynchronizeStream(stream); }
  void synchronizeDevice(DeviceIndex device) const override { SynchronizeDevice(device); }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const Stream& stream) const override {
    RecordStream(pointer, stream);
  }

  // Never called for an event that was not recorded: torch knows that it stands for nothing.
  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event{stream.device_index(), nullptr, nullptr, {}};
      Counters::Get().Add("new events");
    }
    RecordEvent(EventOf(*event), stream);
  }
  void block(void* event, const Stream& stream) const override {
    WaitEvent(*EventOf(event), stream);
  }
  bool queryEvent(void* event) const override { return QueryEvent(*EventOf(event)); }
  void synchronizeEvent(void* event) const override { SynchronizeEvent(*EventOf(event)); }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete EventOf(event); }
  double elapsedTime(void* start, void* end, DeviceIndex) const override {
    return MillisecondsBetween(*EventOf(start), *EventOf(end));
  }
};

struct DeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  void setCurrentDevice(DeviceIndex device) const override { SetCurrentDevice(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex previous = CurrentDevice();
    SetCurrentDevice(device);
    return previous;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  Device getDeviceFromPtr(void* data) const override { return DeviceOfPointer(data); }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return PinnedMemory(); }
  // Random operators make the host wait and draw from the host's generator.
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    ResizeStorage(storage.unsafeGetStorageImpl(), bytes);
  }
};

const c10::impl::DeviceGuardImplRegistrar g_guard_registered(kType, new DeviceGuardImpl());
const bool g_hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new DeviceHooks());
  return true;
}();

}  // namespace
}  // namespace simdevice

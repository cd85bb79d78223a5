// The clock of DistributedDataParallel's statistics (_get_ddp_logging_data) on this device. See c10d's
// reducer_timer.hpp.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace c10d {

namespace {

class NeuronTimer final : public Timer {
 public:
  explicit NeuronTimer(c10::Device device) : device_(device) {}

  // On the current stream of the device.
  void record(Event event) override {
    Timer::record(event);
    const c10::impl::VirtualGuardImpl guard(device_.type());
    at(event).record(guard.getStream(device_));
  }

  // Blocks the host until both have happened.
  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    c10::Event& first = at(start);
    c10::Event& last = at(end);
    if (!first.was_marked_for_recording() || !last.was_marked_for_recording()) return std::nullopt;
    first.synchronize();
    last.synchronize();
    constexpr double kNanosecondsPerMillisecond = 1e6;
    const auto elapsed = static_cast<std::int64_t>(first.elapsedTime(last) * kNanosecondsPerMillisecond);
    // Backward may end before it has begun where nothing was to be communicated.
    return elapsed < 0 ? std::nullopt : std::optional(elapsed);
  }

 private:
  c10::Event& at(Event event) { return events_[static_cast<std::size_t>(event)]; }

  static c10::Event timed() { return {c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT}; }

  c10::Device device_;
  std::array<c10::Event, 5> events_{timed(), timed(), timed(), timed(), timed()};
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, NeuronTimer)

}  // namespace

}  // namespace c10d

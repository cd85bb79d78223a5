#include "bridge/runtime/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>

#include <cstring>
#include <deque>
#include <mutex>

#include "bridge/runtime/devices.h"

namespace neuron::bridge {

namespace {
constexpr std::size_t kStateBytes = 2 * sizeof(std::uint64_t);
}

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(neuron_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void NeuronGenerator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

std::uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == static_cast<std::int64_t>(kStateBytes), "neuron: the RNG state has ",
              kStateBytes, " bytes (seed, offset), got ", state.numel());
  std::uint64_t words[2];
  std::memcpy(words, state.data(), kStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  auto state = at::detail::empty_cpu({static_cast<std::int64_t>(kStateBytes)}, at::kByte, std::nullopt,
                                     std::nullopt, std::nullopt, std::nullopt);
  const std::uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

PhiloxState NeuronGenerator::reserve(std::uint64_t count) {
  const PhiloxState state{seed_, offset_};
  // DTensor's tracker does arithmetic on offsets in multiples of 4, as CUDA's Philox has them.
  offset_ += (count + 3) / 4 * 4;
  return state;
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto* copy = new NeuronGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<NeuronGenerator>(resolve(device));
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* generators = new std::deque<at::Generator>();
  device = resolve(device);
  TORCH_CHECK(device < std::max<c10::DeviceIndex>(device_count(), 1), "Device index ",
              static_cast<int>(device), " is out of range: there are ", static_cast<int>(device_count()),
              " neuron devices");
  const std::lock_guard<std::mutex> lock(mutex);
  while (generators->size() <= static_cast<std::size_t>(device)) {
    generators->push_back(make_generator(static_cast<c10::DeviceIndex>(generators->size())));
  }
  return (*generators)[static_cast<std::size_t>(device)];
}

PhiloxState reserve_random(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t count) {
  auto* chosen = at::get_generator_or_default<NeuronGenerator>(generator, default_generator(device));
  const std::lock_guard<std::mutex> lock(chosen->mutex_);
  return chosen->reserve(count);
}

}  // namespace neuron::bridge

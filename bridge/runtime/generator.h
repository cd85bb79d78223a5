// Generator: the device's random state is (seed, offset), 16 bytes, as DTensor's RNG tracker expects.
//
// A random command reserves its piece of the counter space when it is submitted; what it draws depends on
// nothing else, so results do not depend on timing. Guard with the generator's mutex_, as torch's interface
// demands.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

namespace neuron::bridge {

struct PhiloxState {
  std::uint64_t seed;
  std::uint64_t offset;
};

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override;
  // 16 bytes: seed, offset. Raises for any other size.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Reserves `count` counters and gives the state to start from. Requires: mutex_ held.
  PhiloxState reserve(std::uint64_t count);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  NeuronGenerator* clone_impl() const override;

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);

// The generator to draw from (the given one, else the device's), with `count` counters reserved.
PhiloxState reserve_random(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t count);

}  // namespace neuron::bridge

// Random fills: uniform_, normal_, exponential_, bernoulli_, random_ and dropout, from the device's own
// generator.
//
// A call reserves its counters when it is submitted (one counter for every two elements). Distributions that
// are not here run the CPU's kernel with a CPU generator seeded from a reserved piece (dispatch/execute.cpp).
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "bridge/dispatch/kernel_scope.h"
#include "bridge/dispatch/op_counters.h"
#include "bridge/ops/philox.h"
#include "bridge/runtime/alias.h"
#include "bridge/runtime/allocator.h"
#include "bridge/runtime/generator.h"
#include "bridge/runtime/streams.h"
#include "engine/base/env.h"

namespace neuron::bridge {

namespace {

using OptionalGenerator = std::optional<at::Generator>;
using Bits = std::array<std::uint32_t, 4>;

constexpr std::int64_t kGrain = 1 << 15;  // elements a thread takes at least

template <typename T, typename Value>
T to_element(Value value) {
  if constexpr (std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// draw() makes two elements of 128 random bits.
template <typename T, typename Draw>
void fill_contiguous(T* out, std::int64_t count, PhiloxState state, const Draw& draw) {
  const Philox philox(state.seed, 0);
  at::parallel_for(0, (count + 1) / 2, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const Bits bits = philox(state.offset + static_cast<std::uint64_t>(pair));
      const auto [first, second] = draw(bits);
      out[2 * pair] = to_element<T>(first);
      if (2 * pair + 1 < count) out[2 * pair + 1] = to_element<T>(second);
    }
  });
}

// One fill as a command. Draw: Bits -> pair of values for two elements.
template <typename Draw>
class FillCommand final : public Command {
 public:
  FillCommand(const char* name, at::Tensor target, PhiloxState state, Draw draw)
      : Command(CommandKind::kCompute, RunMode::kMayInline, name),
        target_(std::move(target)),
        state_(state),
        draw_(draw),
        threads_(intra_op_threads()) {
    set_traffic_bytes(target_.nbytes());
  }

  Status run(Stream& /*stream*/) override {
    const KernelScope scope(threads_);
    const bool direct = target_.is_contiguous();
    const at::Tensor out = direct ? target_ : at::empty_like(target_, at::MemoryFormat::Contiguous);
    AT_DISPATCH_V2(
        out.scalar_type(), "random fill",
        AT_WRAP([&] { fill_contiguous(out.mutable_data_ptr<scalar_t>(), out.numel(), state_, draw_); }),
        AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kHalf, at::kBFloat16, at::kBool);
    if (!direct) target_.copy_(out);
    return Status::ok();
  }

 private:
  at::Tensor target_;
  PhiloxState state_;
  Draw draw_;
  int threads_;
};

template <typename Draw>
void submit_fill(const char* name, const at::Tensor& target, const OptionalGenerator& generator, Draw draw) {
  // The generator takes part in dispatch: without this a host tensor would be written to behind its owner's
  // back.
  TORCH_CHECK(target.device().type() == c10::DeviceType::PrivateUse1, "Expected a '", target.device().type(),
              "' device type for generator but found 'neuron'");
  if (target.numel() == 0) return;
  const auto device = target.device().index();
  const PhiloxState state =
      reserve_random(generator, device, static_cast<std::uint64_t>(target.numel() + 1) / 2);
  Stream& stream = current_stream(device);
  const StreamPosition position =
      submit(stream, std::make_unique<FillCommand<Draw>>(name, make_alias(target), state, draw));
  record_use(target, stream, position);
  count_executed(name);
  if (env().launch_blocking) synchronize(stream);
}

// The largest number below `bound` that the type holds.
template <typename T>
double below_in(double bound) {
  T value = static_cast<T>(bound);
  while (static_cast<double>(value) >= bound)
    value = std::nextafter(value, -std::numeric_limits<T>::infinity());
  return static_cast<double>(value);
}

double below(double bound, at::ScalarType dtype) {
  if (dtype == at::kDouble) return below_in<double>(bound);
  const double single = below_in<float>(bound);
  if (dtype == at::kFloat) return single;
  // Half precision: from the float below, cut off the bits that the type does not have, toward minus
  // infinity.
  const double step = dtype == at::kHalf ? std::ldexp(1.0, std::max(std::ilogb(single), -14) - 10)
                                         : std::ldexp(1.0, std::max(std::ilogb(single), -126) - 7);
  return std::floor(single / step) * step;
}

std::pair<double, double> units(const Bits& bits) {
  return {unit_double(bits[0], bits[1]), unit_double(bits[2], bits[3])};
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  TORCH_CHECK(self.is_floating_point() || self.is_complex(), "uniform_ takes floating point tensors, got ",
              self.scalar_type());
  if (self.is_complex()) {
    at::Tensor parts = at::view_as_real(self);
    uniform_(parts, from, to, std::move(generator));
    return self;
  }
  // Rounding to a narrow type must not reach `to`.
  const double last = from < to ? std::max(from, below(to, self.scalar_type())) : to;
  submit_fill("aten::uniform_", self, generator, [=](const Bits& bits) {
    const auto [a, b] = units(bits);
    return std::pair<double, double>(std::min(from + a * (to - from), last),
                                     std::min(from + b * (to - from), last));
  });
  return self;
}

at::Tensor& normal_(at::Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  TORCH_CHECK(deviation >= 0.0, "normal expects std >= 0.0, but found std ", deviation);
  TORCH_CHECK(self.is_floating_point() || self.is_complex(), "normal_ takes floating point tensors, got ",
              self.scalar_type());
  if (self.is_complex()) {
    // Real and imaginary parts share the variance.
    at::Tensor parts = at::view_as_real(self);
    normal_(parts, mean, deviation / std::numbers::sqrt2, std::move(generator));
    return self;
  }
  submit_fill("aten::normal_", self, generator, [=](const Bits& bits) {
    // Box-Muller; 1 - u lies in (0, 1].
    const auto [u, v] = units(bits);
    const double radius = deviation * std::sqrt(-2.0 * std::log1p(-u));
    const double angle = 2.0 * std::numbers::pi * v;
    return std::pair<double, double>(mean + radius * std::cos(angle), mean + radius * std::sin(angle));
  });
  return self;
}

at::Tensor& exponential_(at::Tensor& self, double rate, OptionalGenerator generator) {
  TORCH_CHECK(rate > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  TORCH_CHECK(self.is_floating_point(), "exponential_ takes floating point tensors, got ",
              self.scalar_type());
  submit_fill("aten::exponential_", self, generator, [=](const Bits& bits) {
    const auto [u, v] = units(bits);
    // Never 0: callers divide by it.
    const auto draw = [rate](double x) { return std::max(-std::log1p(-x) / rate, 0x1p-40 / rate); };
    return std::pair<double, double>(draw(u), draw(v));
  });
  return self;
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, OptionalGenerator generator) {
  TORCH_CHECK(p >= 0.0 && p <= 1.0, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  submit_fill("aten::bernoulli_.float", self, generator, [=](const Bits& bits) {
    const auto [u, v] = units(bits);
    return std::pair<int, int>(u < p ? 1 : 0, v < p ? 1 : 0);
  });
  return self;
}

// Integers in [base, base + range); range 0 stands for all of 2^64.
at::Tensor& random_range(const char* name, at::Tensor& self, std::uint64_t range, std::int64_t base,
                         const OptionalGenerator& generator) {
  submit_fill(name, self, generator, [=](const Bits& bits) {
    const auto draw = [=](std::uint32_t high, std::uint32_t low) {
      const std::uint64_t value = std::uint64_t{high} << 32 | low;
      // The high half of a 128-bit product: uniform to within range / 2^64.
      const std::uint64_t scaled =
          range == 0 ? value
                     : static_cast<std::uint64_t>(static_cast<unsigned __int128>(value) * range >> 64);
      return static_cast<std::int64_t>(scaled + static_cast<std::uint64_t>(base));
    };
    return std::pair<std::int64_t, std::int64_t>(draw(bits[0], bits[1]), draw(bits[2], bits[3]));
  });
  return self;
}

// One past the largest integer that the type holds exactly, as the CPU's random_ has it; 0: 2^64.
std::uint64_t full_range(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return 2;
    case at::kByte:
    case at::kChar:
      return dtype == at::kByte ? 256 : 128;
    case at::kShort:
      return 1ULL << 15;
    case at::kInt:
      return 1ULL << 31;
    case at::kHalf:
      return (1ULL << 11) + 1;
    case at::kBFloat16:
      return (1ULL << 8) + 1;
    case at::kFloat:
      return (1ULL << 24) + 1;
    case at::kDouble:
      return (1ULL << 53) + 1;
    case at::kUInt16:
      return 1ULL << 16;
    case at::kUInt32:
      return 1ULL << 32;
    default:
      return 1ULL << 63;
  }
}

at::Tensor& random_(at::Tensor& self, OptionalGenerator generator) {
  return random_range("aten::random_", self, full_range(self.scalar_type()), 0, generator);
}

at::Tensor& random_from(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
                        OptionalGenerator generator) {
  if (!to.has_value()) {
    const std::uint64_t end =
        from == std::numeric_limits<std::int64_t>::min() && self.scalar_type() == at::kLong
            ? 0
            : full_range(self.scalar_type()) - static_cast<std::uint64_t>(from);
    return random_range("aten::random_.from", self, end, from, generator);
  }
  TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
  const std::uint64_t range = static_cast<std::uint64_t>(*to) - static_cast<std::uint64_t>(from);
  return random_range("aten::random_.from", self, range, from, generator);
}

at::Tensor& random_to(at::Tensor& self, std::int64_t to, OptionalGenerator generator) {
  return random_from(self, 0, to, std::move(generator));
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  bernoulli_float_(mask, 1.0 - p, std::nullopt);
  const double scale = p >= 1.0 ? 0.0 : 1.0 / (1.0 - p);
  return {input.mul(mask).mul_(scale), mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("exponential_", &exponential_);
  m.impl("bernoulli_.float", &bernoulli_float_);
  m.impl("random_", &random_);
  m.impl("random_.from", &random_from);
  m.impl("random_.to", &random_to);
  m.impl("native_dropout", &native_dropout);
}

}  // namespace

}  // namespace neuron::bridge

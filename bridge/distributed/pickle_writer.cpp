#include "bridge/distributed/pickle_writer.h"

#include <bit>
#include <limits>
#include <utility>

namespace neuron::bridge {

namespace {

// Python's pickletools explains them.
constexpr char kProtocol = '\x80';
constexpr char kMark = '(';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kTuple = 't';
constexpr char kUnicode = 'X';
constexpr char kInt32 = 'J';
constexpr char kLong = '\x8a';
constexpr char kFloat = 'G';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kNone = 'N';
constexpr char kPut = 'r';
constexpr char kGet = 'j';
constexpr char kStop = '.';

}  // namespace

PickleWriter::PickleWriter() {
  byte(kProtocol);
  byte(2);
}

void PickleWriter::bytes(std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) byte(static_cast<char>(value >> (8 * i) & 0xFF));
}

void PickleWriter::begin_dict() {
  byte(kEmptyDict);
  byte(kMark);
}

void PickleWriter::end_dict() { byte(kSetItems); }

void PickleWriter::begin_list() {
  byte(kEmptyList);
  byte(kMark);
}

void PickleWriter::end_list() { byte(kAppends); }

void PickleWriter::begin_tuple() { byte(kMark); }

void PickleWriter::end_tuple() { byte(kTuple); }

void PickleWriter::text(std::string_view value) {
  const auto [known, is_new] = texts_.try_emplace(std::string(value), names_);
  if (!is_new) return refer(known->second);
  byte(kUnicode);
  bytes(value.size(), 4);
  out_.append(value);
  name();
}

void PickleWriter::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    byte(kInt32);
    return bytes(bits, 4);
  }
  byte(kLong);
  byte(8);
  bytes(bits, 8);
}

void PickleWriter::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  byte(kFloat);
  for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<char>(bits >> shift & 0xFF));
}

void PickleWriter::boolean(bool value) { byte(value ? kTrue : kFalse); }

void PickleWriter::none() { byte(kNone); }

void PickleWriter::item(std::string_view key, std::string_view value) {
  text(key);
  text(value);
}

void PickleWriter::item(std::string_view key, std::int64_t value) {
  text(key);
  integer(value);
}

void PickleWriter::item(std::string_view key, bool value) {
  text(key);
  boolean(value);
}

std::uint32_t PickleWriter::name() {
  byte(kPut);
  bytes(names_, 4);
  return names_++;
}

void PickleWriter::refer(std::uint32_t name) {
  byte(kGet);
  bytes(name, 4);
}

std::string PickleWriter::finish() {
  byte(kStop);
  return std::move(out_);
}

}  // namespace neuron::bridge

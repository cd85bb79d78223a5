// PickleWriter: plain values as a Python pickle (protocol 2), written front to back.
//
// torch's own pickler wants the values as IValues first, which for a full flight recorder takes longer than a
// launcher leaves to the survivors of a failed job. Values nest as they are written: a dict is begun, then
// keys and values take turns, then it is ended; a list or tuple likewise. A text that was written before is
// referred to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace neuron::bridge {

class PickleWriter {
 public:
  PickleWriter();

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();

  void text(std::string_view value);
  void integer(std::int64_t value);
  void real(double value);
  void boolean(bool value);
  void none();

  // A dict's key and plain value.
  void item(std::string_view key, std::string_view value);
  void item(std::string_view key, const char* value) { item(key, std::string_view(value)); }
  void item(std::string_view key, std::int64_t value);
  void item(std::string_view key, bool value);

  // Names the value that was just ended; refer() writes it again. Python gets one object, not two.
  std::uint32_t name();
  void refer(std::uint32_t name);

  // The whole pickle. The writer is used up.
  std::string finish();

 private:
  void byte(char value) { out_.push_back(value); }
  // Little-endian, as all of a pickle but its floats.
  void bytes(std::uint64_t value, int count);

  std::string out_;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::uint32_t names_ = 0;
};

}  // namespace neuron::bridge

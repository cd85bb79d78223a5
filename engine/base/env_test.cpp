#include "engine/base/env.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/base/edit_distance.h"

namespace neuron {
namespace {

EnvReading read(const std::map<std::string, std::string>& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(EnvTest, DefaultsWhenNothingIsSet) {
  const EnvReading reading = read({});
  ASSERT_TRUE(reading.status.is_ok());
  EXPECT_EQ(reading.values.instance, "trn2.48xlarge");
  EXPECT_EQ(reading.values.limits, Limits::kDocumented);
  EXPECT_EQ(reading.values.inline_choice, InlineChoice::kAuto);
  EXPECT_EQ(reading.values.hbm_bytes, 0U);
  EXPECT_FALSE(reading.values.host_reserve.has_value());
  EXPECT_EQ(reading.values.max_commands_ahead, 1024);
  EXPECT_EQ(reading.values.max_bytes_ahead, std::uint64_t{64} << 20);
  EXPECT_TRUE(reading.values.enable_streams);
  EXPECT_FALSE(reading.values.enable_host_cc);
  EXPECT_FALSE(reading.values.local_rank.has_value());
  EXPECT_EQ(reading.values.log_level, LogLevel::kWarn);
}

TEST(EnvTest, TypedValues) {
  const EnvReading reading = read({{"NEURON_EMU_LIMITS", "EXTENDED"},
                                   {"NEURON_EMU_HBM_BYTES", "512M"},
                                   {"NEURON_EMU_HOST_RESERVE", "2G"},
                                   {"NEURON_EMU_INLINE", "never"},
                                   {"NEURON_EMU_SIMD", "avx2"},
                                   {"NEURON_EMU_FORCE", "1"},
                                   {"TORCH_NEURONX_ENABLE_STREAMS", "false"},
                                   {"NEURON_RT_VISIBLE_CORES", ""},
                                   {"NEURON_RT_LOG_LEVEL", "debug"}});
  ASSERT_TRUE(reading.status.is_ok()) << reading.status.message();
  EXPECT_EQ(reading.values.limits, Limits::kExtended);
  EXPECT_EQ(reading.values.hbm_bytes, std::uint64_t{512} << 20);
  EXPECT_EQ(reading.values.host_reserve, std::uint64_t{2} << 30);
  EXPECT_EQ(reading.values.inline_choice, InlineChoice::kNever);
  EXPECT_EQ(reading.values.simd, SimdChoice::kAvx2);
  EXPECT_TRUE(reading.values.force);
  EXPECT_FALSE(reading.values.enable_streams);
  EXPECT_EQ(reading.values.visible_cores, "");  // set, though empty
  EXPECT_EQ(reading.values.log_level, LogLevel::kDebug);
}

TEST(EnvTest, MalformedValueNamesVariableValueAndWhatIsAllowed) {
  for (const auto& [name, value, allowed] : std::vector<std::array<std::string, 3>>{
           {"NEURON_EMU_LIMITS", "loose", "documented, strict or extended"},
           {"NEURON_EMU_HBM_BYTES", "lots", "512M"},
           {"NEURON_EMU_HBM_BYTES", "-1", "512M"},
           {"NEURON_EMU_INLINE", "", "auto, always or never"},
           {"NEURON_EMU_MAX_COMMANDS_AHEAD", "12x", "whole number"},
           {"NEURON_EMU_MAX_COMMANDS_AHEAD", "0", "1 to 65536"},
           {"TORCH_FR_BUFFER_SIZE", "-2", "-1 to 1000000"},
           {"TORCH_NCCL_TRACE_BUFFER_SIZE", "9999999", "0 to 1000000"},
           {"NEURON_LAUNCH_BLOCKING", "maybe", "0 or 1"},
           {"NEURON_RT_LOG_LEVEL", "LOUD", "TRACE"}}) {
    const EnvReading reading = read({{name, value}});
    ASSERT_FALSE(reading.status.is_ok()) << name << "=" << value;
    EXPECT_EQ(reading.status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(reading.status.message().find(name + "=" + value), std::string::npos)
        << reading.status.message();
    EXPECT_NE(reading.status.message().find(allowed), std::string::npos) << reading.status.message();
  }
}

TEST(EnvTest, TheDefaultStandsForAMalformedValue) {
  const EnvReading reading =
      read({{"NEURON_EMU_LIMITS", "loose"}, {"NEURON_EMU_MAX_COMMANDS_AHEAD", "99999999"}});
  EXPECT_EQ(reading.values.limits, Limits::kDocumented);
  EXPECT_EQ(reading.values.max_commands_ahead, 65536);
}

TEST(EnvTest, TableHasEachNameOnceWithADocumentation) {
  std::set<std::string_view> names;
  for (const EnvVariable& variable : env_table()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.doc.ends_with(".")) << variable.name;
  }
  for (const char* name : {"NEURON_EMU_SIMD", "NEURON_RT_VISIBLE_CORES", "TORCH_NEURONX_NEFF_CACHE_DIR"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(EnvTest, UnknownVariablesOfOursGetSuggestions) {
  const std::vector<std::string> names{
      "NEURON_EMU_LIMIT=strict",     "NEURON_EMU_INLINE=always",    "NEURON_OTHER=1", "PATH=/bin",
      "NEURON_EMU_MAX_BYTE_AHEAD=1", "NEURON_EMU_QQQQQQQQQQQQQQQ=1"};
  const auto found = unknown_variables(names);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0], "NEURON_EMU_LIMIT is not a variable of neuron-emu; did you mean NEURON_EMU_LIMITS?");
  EXPECT_NE(found[1].find("did you mean NEURON_EMU_MAX_BYTES_AHEAD"), std::string::npos);
  EXPECT_EQ(found[2], "NEURON_EMU_QQQQQQQQQQQQQQQ is not a variable of neuron-emu");
}

TEST(EnvTest, ParseBytes) {
  EXPECT_EQ(parse_bytes("512"), 512U);
  EXPECT_EQ(parse_bytes("1k"), 1024U);
  EXPECT_EQ(parse_bytes("3MiB"), std::uint64_t{3} << 20);
  EXPECT_EQ(parse_bytes("2GB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1T"), std::uint64_t{1} << 40);
  EXPECT_EQ(parse_bytes("7B"), 7U);
  for (const char* wrong :
       {"", "G", "1X", "1 G", "1.5G", "-1", "+1", "99999999999999999999", "20000000T", "1iB2"}) {
    EXPECT_FALSE(parse_bytes(wrong).has_value()) << wrong;
  }
}

TEST(EditDistanceTest, CountsLettersAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
  EXPECT_EQ(edit_distance("NEURON_EMU_SMID", "NEURON_EMU_SIMD"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace neuron

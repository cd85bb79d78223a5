#include "engine/nccom_test/options.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/nccom_test/option_table.h"

namespace neuron::nccom_test {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

Options good(const std::string& line) {
  const Result<Options> parsed = parse_options(words(line));
  EXPECT_TRUE(parsed.is_ok()) << line << ": " << parsed.status().message();
  return parsed.is_ok() ? parsed.value() : Options{};
}

void expect_refused(const std::string& line, const std::string& told) {
  const Result<Options> parsed = parse_options(words(line));
  ASSERT_FALSE(parsed.is_ok()) << line;
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status().message().find(told), std::string::npos)
      << line << ": " << parsed.status().message();
}

std::vector<std::string> statistics(const Options& options) {
  std::vector<std::string> names;
  for (const Statistic& statistic : options.statistics) names.push_back(statistic.name);
  return names;
}

TEST(OptionsTest, DefaultsAreThoseOfTheTool) {
  const Options options = good("-r 2 allr");
  EXPECT_EQ(options.operations, std::vector{Operation::kAllReduce});
  EXPECT_EQ(options.workers, 2);
  EXPECT_EQ(options.min_bytes, std::size_t{32} << 20);
  EXPECT_EQ(options.max_bytes, std::size_t{32} << 20);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 5);
  EXPECT_EQ(options.dtype, DType::kUint8);
  EXPECT_EQ(options.op, ReduceOp::kSum);
  EXPECT_EQ(options.check, InputValues::kRandom);
  EXPECT_FALSE(options.threads);
  EXPECT_TRUE(options.statistics.empty());
}

TEST(OptionsTest, ALineOfTheToolsGuide) {
  const Options options = good(
      "-r 8 --minbytes 1kb --maxbytes 1mb --stepfactor 8 --datatype fp32 --check --stats avg p25 p50 --iters "
      "1000 allg "
      "--non-interactive -N 1 --report-to-json-file out.json");
  EXPECT_EQ(options.operations, std::vector{Operation::kAllGather});
  EXPECT_EQ(options.min_bytes, 1024U);
  EXPECT_EQ(options.max_bytes, 1U << 20);
  EXPECT_EQ(options.step_factor, 8U);
  EXPECT_EQ(options.dtype, DType::kFloat32);
  EXPECT_EQ(options.iterations, 1000);
  EXPECT_EQ(statistics(options), (std::vector<std::string>{"avg", "p25", "p50"}));
  EXPECT_EQ(options.json_path, "out.json");
}

TEST(OptionsTest, ValuesThatMayBeLeftOutDoNotSwallowTheOperation) {
  const Options options = good("-r 2 --stats allr --report-to-json-file allg --check redsct");
  EXPECT_EQ(options.operations,
            (std::vector{Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter}));
  EXPECT_EQ(statistics(options), (std::vector<std::string>{"avg", "p50", "p90", "p99", "p100"}));
  EXPECT_EQ(options.json_path, "nccom-test.json");
  EXPECT_EQ(options.check, InputValues::kRandom);
}

TEST(OptionsTest, AttachedValues) {
  const Options options = good("-r2 --minbytes=8 -e64 -f2 bcast --root=1");
  EXPECT_EQ(options.workers, 2);
  EXPECT_EQ(options.min_bytes, 8U);
  EXPECT_EQ(options.max_bytes, 64U);
  EXPECT_EQ(options.root, 1);
}

TEST(OptionsTest, OneBoundBeyondTheOthersDefaultTakesItAlong) {
  EXPECT_EQ(good("-r 2 allr -e 1K").min_bytes, 1024U);
  EXPECT_EQ(good("-r 2 allr -b 1G").max_bytes, std::size_t{1} << 30);
  EXPECT_EQ(good("-r 2 allr -b 1K").max_bytes, std::size_t{32} << 20);
}

TEST(OptionsTest, CheckModes) {
  EXPECT_EQ(good("-r 2 allr -c all_ones").check, InputValues::kOnes);
  EXPECT_EQ(good("-r 2 allr --check off").check, std::nullopt);
  EXPECT_EQ(good("-r 2 allr --no-check").check, std::nullopt);
}

TEST(OptionsTest, WhatIsWrongIsSaid) {
  expect_refused("-r 2", "no operation is given");
  expect_refused("allr", "the number of workers is missing");
  expect_refused("-r 2 allreduce", "'allreduce' is no operation; did you mean all_reduce");
  expect_refused("-r 0 allr", "-r 0: a whole number from 1 to 128 is needed");
  expect_refused("-r two allr", "-r two: a whole number");
  expect_refused("-r 2 allr -b", "-b needs a value, and the line ends there");
  expect_refused("-r 2 -b -e 8 allr", "-b needs a value, not the option -e");
  expect_refused("-r 2 allr -b 1X", "such as 4096, 1K, 32MB or 1GiB");
  expect_refused("-r 2 allr -b 2K -e 1K", "--minbytes 2048 is above --maxbytes 1024");
  expect_refused("-r 2 allr -f 1", "-f 1: a size from 2");
  expect_refused("-r 2 allr -f 2 -i 8", "exclude each other");
  expect_refused("-r 2 allr -n -5", "-n -5: a whole number from 1");
  expect_refused("-r 2 allr -d fp3", "did you mean fp");
  expect_refused("-r 2 allr --op mean", "'mean' is no reduction");
  expect_refused("-r 2 allr -d fp32 --op bxor", "datatype fp32 has no such reduction");
  expect_refused("-r 2 allr --stats p101", "avg or a percentile from p0 to p100");
  expect_refused("-r 2 bcast --root 2", "with 2 workers it is at most 1");
  expect_refused("-r 2 barrier", "barrier moves no bytes");
  expect_refused("-r 2 allr --nworker 3", "did you mean --nworkers");
}

TEST(OptionsTest, AReductionIsAskedForOnlyWhereThereIsOne) {
  EXPECT_EQ(good("-r 2 allg -d fp32 --op bxor").operations, std::vector{Operation::kAllGather});
}

TEST(OptionsTest, OptionsThatMeanNothingHereSayWhy) {
  expect_refused("-r 2 allr -N 2", "only the cores of one machine");
  expect_refused("-r 2 allr --hosts a b", "only the cores of one machine");
  expect_refused("-r 2 allr -s a", "--stats is -t");
  for (const ForeignOption& foreign : foreign_options())
    expect_refused("-r 2 allr " + std::string(foreign.name), std::string(foreign.reason));
}

TEST(OptionsTest, HelpNamesEveryOptionAndNeedsNothingElse) {
  EXPECT_TRUE(good("--help").help);
  for (const OptionEntry& entry : option_table())
    EXPECT_NE(help_text().find(entry.name), std::string::npos) << entry.name;
}

}  // namespace
}  // namespace neuron::nccom_test

// A run from its options to its table and JSON, with ranks as threads; right and wrong results.
#include "engine/nccom_test/rank_run.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/measure/run_ranks.h"

namespace neuron::nccom_test {
namespace {

class RankRunTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rank-run-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    Result<Options> parsed =
        parse_options(std::vector<std::string>{"-r", "2", "allr", "allg", "-b", "64", "-e", "128", "-f", "2",
                                               "-n", "2", "--report-to-json-file", json_path()});
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    options_ = parsed.value();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string json_path() const { return directory_ + "/report.json"; }

  // What the ranks have printed. Rank 1 takes its values from `seed`, rank 0 from 0.
  std::string run(std::uint64_t seed, bool& good) {
    testing::internal::CaptureStdout();
    RankLaunch launch;
    launch.program = "test";
    launch.ranks = options_.workers;
    launch.processes = false;
    good = run_ranks(launch, [&](int rank, Bootstrap& bootstrap) {
      Options own = options_;
      own.seed = rank == 1 ? seed : 0;
      return run_operations(own, rank, bootstrap);
    });
    return testing::internal::GetCapturedStdout();
  }

  std::string json() const {
    std::ostringstream text;
    text << std::ifstream(json_path()).rdbuf();
    return text.str();
  }

  std::string directory_;
  Options options_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(RankRunTest, RightResults) {
  bool good = false;
  const std::string table = run(0, good);
  EXPECT_TRUE(good);
  EXPECT_EQ(count(table, "#wrong\n"), 2U) << table;
  EXPECT_EQ(count(table, "    uint8"), 4U) << table;
  EXPECT_EQ(count(table, "         0\n"), 4U) << table;
  EXPECT_EQ(count(table, "errors found"), 0U) << table;
  EXPECT_EQ(count(json(), "\"wrong(elems)\": 0}"), 4U) << json();
}

TEST_F(RankRunTest, WrongResultsAreCountedAndFailTheRun) {
  bool good = true;
  const std::string table = run(1, good);
  EXPECT_FALSE(good);
  EXPECT_EQ(count(table, "         0\n"), 0U) << table;
  EXPECT_EQ(count(table, "4 errors found - test failed\n"), 1U) << table;
  EXPECT_EQ(count(json(), "\"wrong(elems)\": "), 4U) << json();
  EXPECT_EQ(count(json(), "\"wrong(elems)\": 0}"), 0U) << json();
}

TEST_F(RankRunTest, WithoutTheCheckWrongResultsAreNotSeen) {
  options_.check.reset();
  bool good = false;
  const std::string table = run(1, good);
  EXPECT_TRUE(good);
  EXPECT_EQ(count(table, "#wrong"), 0U) << table;
  EXPECT_EQ(count(json(), "wrong"), 0U) << json();
}

}  // namespace
}  // namespace neuron::nccom_test

#include "engine/nccom_test/report.h"

#include <gtest/gtest.h>

namespace neuron::nccom_test {
namespace {

Options options_of(const std::vector<std::string>& words) {
  Result<Options> parsed = parse_options(words);
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  return std::move(parsed).value();
}

// 33,554,432 bytes in 768 us: a line of the tool's guide.
Row guide_row() {
  return {Operation::kAllReduce,
          33'554'432,
          33'554'432,
          33'554'432,
          33'554'432,
          SampleStatistics({700, 768, 836}),
          0};
}

TEST(ReportTest, BandwidthsAreThoseOfTheToolsGuide) {
  EXPECT_NEAR(algbw(guide_row()), 40.69, 0.005);
  EXPECT_NEAR(busbw(guide_row(), 2), 40.69, 0.005);
  EXPECT_NEAR(busbw(guide_row(), 4), 61.04, 0.005);
}

TEST(ReportTest, Table) {
  const Options plain = options_of({"-r", "2", "allr", "--no-check"});
  EXPECT_EQ(table_header(plain),
            "     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)");
  EXPECT_EQ(table_line(plain, guide_row()),
            "    33554432        33554432    uint8      768.00          40.69          40.69");
  EXPECT_EQ(average_line(plain, {guide_row()}), "Avg bus bandwidth:\t40.6901GB/s");
}

TEST(ReportTest, TheCheckAddsAColumn) {
  const Options checked = options_of({"-r", "2", "allr"});
  EXPECT_TRUE(table_header(checked).ends_with("busbw(GB/s)    #wrong"));
  Row row = guide_row();
  row.wrong = 17;
  EXPECT_TRUE(table_line(checked, row).ends_with("    17"));
}

TEST(ReportTest, StatisticsAndSizesAreColumns) {
  const Options options = options_of(
      {"-r", "2", "allr", "--no-check", "--show-input-output-size", "--stats", "avg", "p50", "p100"});
  EXPECT_EQ(table_header(options),
            "     size(B)    count(elems)    total_input_size(B)    total_output_size(B)     type    "
            "time:avg(us)    "
            "time:p50(us)    time:p100(us)    algbw(GB/s)    busbw(GB/s)");
  EXPECT_NE(table_line(options, guide_row()).find("768.00          768.00           836.00"),
            std::string::npos)
      << table_line(options, guide_row());
}

TEST(ReportTest, Json) {
  const Options options = options_of({"-r", "2", "allr", "--stats", "avg", "p100"});
  const std::string text = json_report(options, {guide_row()});
  for (const char* part :
       {R"json("emulated": true)json", R"json("nworkers": 2)json", R"json("check": "random")json",
        R"json("operation": "all_reduce")json", R"json("size(B)": 33554432)json",
        R"json("count(elems)": 33554432)json", R"json("type": "uint8")json",
        R"json("algbw(GB/s)": 40.69)json", R"json("busbw(GB/s)": 40.69)json",
        R"json("time:avg(us)": 768)json", R"json("time:p100(us)": 836)json", R"json("wrong(elems)": 0)json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_NE(json_report(options, {}).find(R"json("results": [])json"), std::string::npos);
}

}  // namespace
}  // namespace neuron::nccom_test

#include "engine/device/core_allocation.h"

#include <gtest/gtest.h>

#include <numeric>

namespace neuron {
namespace {

const InstanceType& instance(const char* name = "trn2.48xlarge") { return *find_instance_type(name).value(); }

AllocationRequest visible(const char* cores) {
  AllocationRequest request;
  request.visible_cores = cores;
  return request;
}

AllocationRequest workers(const char* rank, const char* size) {
  AllocationRequest request;
  request.local_rank = rank;
  request.local_world_size = size;
  return request;
}

std::string failure(const AllocationRequest& request) {
  const auto allocation = allocate_cores(instance(), request);
  if (allocation.is_ok()) return "";
  EXPECT_EQ(allocation.status().code(), StatusCode::kInvalidArgument);
  return allocation.status().message();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TopologyTest, TheInstances) {
  EXPECT_EQ(logical_cores(instance("trn2.3xlarge"), 2), 4);
  EXPECT_EQ(logical_cores(instance(), 2), 64);
  EXPECT_EQ(logical_cores(instance(), 1), 128);
  EXPECT_EQ(logical_cores(instance("trn2u.48xlarge"), 2), 64);
  EXPECT_EQ(logical_cores(instance("trn3-gen1"), 2), 256);
  EXPECT_EQ(logical_cores(instance("trn3-gen2"), 2), 576);
  EXPECT_EQ(memory_per_logical_core(instance(), 2), std::size_t{24} << 30);
  EXPECT_EQ(memory_per_logical_core(instance(), 1), std::size_t{12} << 30);
  EXPECT_EQ(memory_per_logical_core(instance("trn3-gen1"), 2), std::size_t{36} << 30);
  for (const InstanceType& type : instance_types()) {
    const bool torus = type.interconnect == Interconnect::kTorus;
    EXPECT_EQ(type.torus_rows * type.torus_columns, torus ? type.chips : 0) << type.name;
  }
}

TEST(TopologyTest, UnknownInstanceNamesTheKnownOnes) {
  const auto found = find_instance_type("p5.48xlarge");
  ASSERT_FALSE(found.is_ok());
  EXPECT_TRUE(contains(found.status().message(), "NEURON_EMU_INSTANCE=p5.48xlarge"));
  EXPECT_TRUE(contains(found.status().message(), "trn2.48xlarge"));
}

TEST(CoreAllocationTest, AllCoresByDefault) {
  const auto allocation = allocate_cores(instance(), {});
  ASSERT_TRUE(allocation.is_ok());
  EXPECT_EQ(allocation.value().lnc, 2);
  EXPECT_EQ(allocation.value().visible.size(), 64U);
  EXPECT_EQ(allocation.value().visible.front(), 0);
  EXPECT_FALSE(allocation.value().local_rank.has_value());
}

TEST(CoreAllocationTest, WellFormedRanges) {
  const std::vector<std::pair<const char*, std::vector<int>>> cases{
      {"4-5", {4, 5}}, {"4,5", {4, 5}},           {"0-3", {0, 1, 2, 3}},
      {"7", {7}},      {"0-1,2-3", {0, 1, 2, 3}}, {"63", {63}}};
  for (const auto& [text, cores] : cases) {
    const auto allocation = allocate_cores(instance(), visible(text));
    ASSERT_TRUE(allocation.is_ok()) << allocation.status().message();
    EXPECT_EQ(allocation.value().visible, cores) << text;
  }
}

TEST(CoreAllocationTest, MalformedRangesAreNamed) {
  for (const char* text : {"",     "a",   "3-1", "4-",    "-4",  "4--5", "4,",     ",4",
                           "4,,5", "4;5", " 4",  "4 ",    "0x4", "+4",   "4-5-6",  "99999999999999999999",
                           "5,4",  "4,4", "4,6", "0-1,3", "64",  "0-64", "2000000"}) {
    const std::string message = failure(visible(text));
    EXPECT_TRUE(contains(message, std::string("NEURON_RT_VISIBLE_CORES=") + text + ":"))
        << text << ": " << message;
  }
  EXPECT_TRUE(contains(failure(visible("64")), "cores 0-63"));
  EXPECT_TRUE(contains(failure(visible("5,4")), "without gaps"));
}

TEST(CoreAllocationTest, NumberOfCores) {
  AllocationRequest request;
  request.num_cores = "3";
  EXPECT_EQ(allocate_cores(instance(), request).value().visible, (std::vector<int>{0, 1, 2}));
  request.num_cores = "0";
  EXPECT_EQ(allocate_cores(instance(), request).value().visible.size(), 64U);
  for (const char* text : {"", "-1", "x", "65"}) {
    request.num_cores = text;
    EXPECT_TRUE(contains(failure(request), std::string("NEURON_RT_NUM_CORES=") + text)) << text;
  }
}

TEST(CoreAllocationTest, VisibleCoresBeatTheNumber) {
  AllocationRequest request = visible("4-5");
  request.num_cores = "1";
  EXPECT_EQ(allocate_cores(instance(), request).value().visible, (std::vector<int>{4, 5}));
}

TEST(CoreAllocationTest, LogicalCoreConfiguration) {
  AllocationRequest request;
  request.lnc = "1";
  const auto allocation = allocate_cores(instance(), request);
  ASSERT_TRUE(allocation.is_ok());
  EXPECT_EQ(allocation.value().lnc, 1);
  EXPECT_EQ(allocation.value().visible.size(), 128U);
  for (const char* text : {"", "0", "3", "two"}) {
    request.lnc = text;
    EXPECT_TRUE(contains(failure(request), "NEURON_LOGICAL_NC_CONFIG")) << text;
  }
}

TEST(CoreAllocationTest, LocalWorkers) {
  const auto allocation = allocate_cores(instance(), workers("1", "2"));
  ASSERT_TRUE(allocation.is_ok());
  EXPECT_EQ(allocation.value().local_rank, 1);
  EXPECT_EQ(allocation.value().local_world_size, 2);
}

TEST(CoreAllocationTest, InconsistentLocalWorkersAreNamed) {
  EXPECT_TRUE(contains(failure(workers("2", "2")), "LOCAL_RANK=2: must be below LOCAL_WORLD_SIZE=2"));
  EXPECT_TRUE(contains(failure(workers("-1", "2")), "LOCAL_RANK=-1"));
  EXPECT_TRUE(contains(failure(workers("x", "2")), "LOCAL_RANK=x"));
  EXPECT_TRUE(contains(failure(workers("0", "0")), "LOCAL_WORLD_SIZE=0"));
  EXPECT_TRUE(contains(failure(workers("0", "")), "LOCAL_WORLD_SIZE="));
}

TEST(CoreAllocationTest, HalfThePairIsLeftToTheProcessGroup) {
  AllocationRequest request;
  request.local_rank = "1";
  const auto allocation = allocate_cores(instance(), request);
  ASSERT_TRUE(allocation.is_ok());
  EXPECT_FALSE(allocation.value().local_rank.has_value());
}

TEST(CoreAllocationTest, TooManyWorkersNameBothNumbersAndTheVariable) {
  AllocationRequest request = workers("0", "3");
  request.visible_cores = "4-5";
  std::string message = failure(request);
  EXPECT_TRUE(contains(message, "LOCAL_WORLD_SIZE=3")) << message;
  EXPECT_TRUE(contains(message, "2 logical cores are visible (NEURON_RT_VISIBLE_CORES=4-5)")) << message;

  request.visible_cores.reset();
  request.num_cores = "1";
  EXPECT_TRUE(contains(failure(request), "1 logical core is visible (NEURON_RT_NUM_CORES=1)"));
  request.num_cores.reset();
  request.local_world_size = "65";
  EXPECT_TRUE(contains(failure(request), "NEURON_EMU_INSTANCE"));
}

}  // namespace
}  // namespace neuron

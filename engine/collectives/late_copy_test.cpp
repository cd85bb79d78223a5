// A peer that is still in the middle of a copy when the group is aborted: it writes to memory that nobody else
// has got meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/collectives/quarantine.h"
#include "engine/testing/rank_processes.h"
#include "engine/testing/rank_threads.h"

namespace neuron {
namespace {

constexpr std::size_t kPart = std::size_t{4} << 20;  // of each rank
constexpr std::byte kOfRank0{1};
constexpr std::byte kOfRank1{2};
constexpr std::byte kReused{7};
constexpr int kGood = 0;

// Rank 1's copy stops where it reads a page that is closed to it, until the test lets it go on.
struct ClosedPage {
  std::byte* page = nullptr;
  std::size_t nbytes = 0;
  std::string in_the_middle;  // paths of marks
  std::string go_on;
};
ClosedPage closed_page;  // NOLINT: the handler has no other way to it

// Only what a signal handler may call.
void open_page(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<std::byte*>(info->si_addr);
  if (at < closed_page.page || at >= closed_page.page + closed_page.nbytes) _exit(97);
  const int mark = open(closed_page.in_the_middle.c_str(), O_CREAT | O_WRONLY, 0600);
  if (mark < 0 || close(mark) != 0) _exit(96);
  while (access(closed_page.go_on.c_str(), F_OK) != 0) sched_yield();
  if (mprotect(closed_page.page, closed_page.nbytes, PROT_READ | PROT_WRITE) != 0) _exit(95);
}

void close_page(const RankProcess& self, std::byte* page) {
  closed_page = {page, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), self.mark_path("in-the-middle"),
                 self.mark_path("go-on")};
  struct sigaction action{};
  action.sa_sigaction = open_page;
  action.sa_flags = SA_SIGINFO;
  NEURON_CHECK(sigaction(SIGSEGV, &action, nullptr) == 0, "sigaction");
  NEURON_CHECK(mprotect(page, closed_page.nbytes, PROT_NONE) == 0, "mprotect");
}

struct Gather {
  Gather(Core& core, int rank)
      : input(std::make_shared<DeviceBuffer>(core, kPart)),
        output(std::make_shared<DeviceBuffer>(core, 2 * kPart)) {
    input->fill(rank == 0 ? kOfRank0 : kOfRank1);
    output->fill(std::byte{0});
  }
  CollectiveRequest request() const {
    CollectiveRequest request{.kind = CollectiveKind::kAllGather, .dtype = DType::kUint8, .count = kPart};
    request.input = input->data();
    request.output = output->data();
    request.holds =
        std::make_shared<const std::pair<std::shared_ptr<DeviceBuffer>, std::shared_ptr<DeviceBuffer>>>(
            input, output);
    return request;
  }
  std::shared_ptr<DeviceBuffer> input;
  std::shared_ptr<DeviceBuffer> output;
};

int wrong(const char* what) {
  std::fprintf(stderr, "wrong: %s\n", what);
  return 50;
}

// One segment a rank, so that rank 1 is in one copy from its first byte to its last.
const CommunicatorOptions kOneSegment{.tuning = {.segment_bytes = kPart}};

int late_rank(RankProcess& self, Communicator& group) {
  const Gather gather(self.core, 1);
  close_page(self, gather.input->data() + kPart / 2);
  // Rank 0 may take over the copy of rank 1's part, whose page is open to it: then once more.
  Status status;
  while (status.is_ok()) status = group.run(gather.request());
  self.set_mark("late-rank-is-done");
  return status.code() == StatusCode::kAborted ? kGood : wrong(status.message().c_str());
}

int aborting_rank(RankProcess& self, Communicator& group) {
  auto gather = std::make_unique<Gather>(self.core, 0);
  const std::byte* const output = gather->output->data();
  const auto is_late = [&] { return self.has_mark("in-the-middle"); };
  std::shared_ptr<Work> work;
  do {
    gather->output->fill(std::byte{0});
    work = group.submit(self.core.default_stream(), gather->request()).value();
    while (!work->is_completed() && !is_late()) std::this_thread::yield();
  } while (work->is_completed() && work->status().is_ok());

  group.abort("the test gives up");
  if (work->wait().code() != StatusCode::kAborted) return wrong("the outcome of an aborted call");
  self.core.synchronize();
  // To whoever asks, this rank's part in the call is over: all is given back.
  gather.reset();
  const std::uint64_t kept = self.core.pool().stats().allocated_bytes.current;
  std::vector<DeviceBuffer> reused;
  for (int i = 0; i < 12; ++i) {
    reused.emplace_back(self.core, kPart);
    reused.back().fill(kReused);
  }
  // Of rank 1's part the first half is there, the other is not.
  if (output[kPart] != kOfRank1 || output[2 * kPart - 1] != std::byte{0}) return wrong("not in the middle");

  self.set_mark("go-on");
  self.wait_for_mark("late-rank-is-done");
  if (output[2 * kPart - 1] != kOfRank1) return wrong("the late copy was not finished");
  const auto is_untouched = [](const DeviceBuffer& buffer) {
    return std::all_of(buffer.data(), buffer.data() + kPart, [](std::byte b) { return b == kReused; });
  };
  if (!std::all_of(reused.begin(), reused.end(), is_untouched)) return wrong("a write to reused memory");
  reused.clear();
  if (sweep_quarantine() != 0) return wrong("kept though the copy has ended");
  const std::uint64_t left = self.core.pool().stats().allocated_bytes.current;
  return left + 3 * kPart <= kept ? kGood : wrong("the quarantine gave nothing back");
}

const RankProgram kLateCopy("late_copy", [](RankProcess& self) {
  const auto group = self.join(kOneSegment);
  return self.rank == 0 ? aborting_rank(self, *group) : late_rank(self, *group);
});

TEST(LateCopyTest, APeerInTheMiddleOfACopyWritesToNobodyElsesMemory) {
  RankProcesses ranks("late_copy", 2);
  for (int rank = 0; rank < 2; ++rank) {
    const ProcessOutcome outcome = ranks.wait(rank);
    ASSERT_TRUE(outcome.ended) << outcome.output;
    EXPECT_EQ(outcome.exit_code, kGood) << outcome.output;
  }
}

}  // namespace
}  // namespace neuron

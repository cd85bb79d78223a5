#include "engine/collectives/wait_elsewhere.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/mutex.h"
#include "engine/collectives/group.h"

namespace neuron {

namespace {

struct Listed {
  Mutex mutex;
  std::vector<Group*> groups GUARDED_BY(mutex);
};

Listed& listed() {
  static Listed& instance = *new Listed();
  return instance;
}

void add_bit(std::uint64_t* words, int bit) { words[bit / 64] |= std::uint64_t{1} << (bit % 64); }

// The members of `other` that are the same cores as those members of `group`, as bits.
void same_cores(const Group& group, const std::vector<int>& members, const Group& other,
                std::uint64_t* words) {
  for (int rank = 0; rank < other.size(); ++rank) {
    const auto same = [&](int member) { return group.heap_base(member) == other.heap_base(rank); };
    if (std::any_of(members.begin(), members.end(), same)) add_bit(words, rank);
  }
}

// Only one thread of the rank writes at a time, under the lock of the list.
void write(WaitNoticeRecord& record, const std::string& group, std::uint64_t sequence,
           std::uint64_t queued_behind, const std::uint64_t* missing) {
  const std::uint32_t version = record.version.load(std::memory_order_relaxed);
  record.version.store(version + 1, std::memory_order_relaxed);
  // Released one by one: who sees one of them sees the odd version, too.
  record.sequence.store(sequence, std::memory_order_release);
  record.queued_behind.store(queued_behind, std::memory_order_release);
  for (std::size_t i = 0; i < WaitNoticeRecord::kWords; ++i)
    record.missing[i].store(missing[i], std::memory_order_release);
  for (std::size_t i = 0; i < WaitNoticeRecord::kNameBytes; ++i)
    record.group[i].store(i < group.size() && i + 1 < WaitNoticeRecord::kNameBytes ? group[i] : '\0',
                          std::memory_order_release);
  record.version.store(version + 2, std::memory_order_release);
}

bool same_name(const WaitNoticeRecord& record, const std::string& group) {
  const std::size_t length = std::min(group.size(), WaitNoticeRecord::kNameBytes - 1);
  for (std::size_t i = 0; i < length; ++i) {
    if (record.group[i].load(std::memory_order_relaxed) != group[i]) return false;
  }
  return record.group[length].load(std::memory_order_relaxed) == '\0';
}

// Calls `body` for each other group of the same core.
template <typename Body>
void for_each_other(const Group& group, const Body& body) {
  Listed& all = listed();
  const MutexLock lock(all.mutex);
  for (Group* other : all.groups) {
    if (other != &group && other->options().core == group.options().core) body(*other);
  }
}

}  // namespace

std::optional<WaitElsewhere> read_wait_elsewhere(const Member& member, int size) {
  const WaitNoticeRecord& record = member.waits_elsewhere;
  WaitElsewhere out;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::uint32_t version = record.version.load(std::memory_order_acquire);
    if (version % 2 != 0) continue;
    out = {};
    out.sequence = record.sequence.load(std::memory_order_acquire);
    out.queued_behind = record.queued_behind.load(std::memory_order_acquire);
    for (int rank = 0; rank < size; ++rank) {
      const std::uint64_t word = record.missing[rank / 64].load(std::memory_order_acquire);
      if ((word >> (rank % 64) & 1) != 0) out.missing.push_back(rank);
    }
    for (const auto& letter : record.group) {
      const char c = letter.load(std::memory_order_acquire);
      if (c == '\0') break;
      out.group += c;
    }
    if (record.version.load(std::memory_order_relaxed) != version) continue;
    return out.sequence == 0 ? std::nullopt : std::optional<WaitElsewhere>(out);
  }
  return std::nullopt;
}

void list_group(Group& group) {
  Listed& all = listed();
  const MutexLock lock(all.mutex);
  all.groups.push_back(&group);
}

void unlist_group(Group& group) {
  Listed& all = listed();
  const MutexLock lock(all.mutex);
  std::erase(all.groups, &group);
}

void WaitNotice::update(const std::vector<int>& missing) {
  told_ = true;
  for_each_other(group_, [&](const Group& other) {
    std::uint64_t words[WaitNoticeRecord::kWords] = {};
    same_cores(group_, missing, other, words);
    write(other.own().waits_elsewhere, group_.options().group_name, sequence_, other.first_queued_here(),
          words);
  });
}

WaitNotice::~WaitNotice() {
  if (!told_) return;
  for_each_other(group_, [&](const Group& other) {
    WaitNoticeRecord& record = other.own().waits_elsewhere;
    // Another wait of this rank may have written meanwhile.
    if (record.sequence.load(std::memory_order_relaxed) != sequence_ ||
        !same_name(record, group_.options().group_name))
      return;
    constexpr std::uint64_t kNobody[WaitNoticeRecord::kWords] = {};
    write(record, "", 0, 0, kNobody);
  });
}

std::optional<WaitNotice::Cycle> WaitNotice::find_cycle(const std::vector<int>& missing) const {
  const int self = group_.rank();
  std::vector<bool> seen(static_cast<std::size_t>(group_.size()), false);
  // Depth first, with the chain in words.
  struct Step {
    int rank;
    int length;
    std::string text;
  };
  std::vector<Step> open;
  for (const int rank : missing) {
    open.push_back(
        {rank, 1, detail::concatenate(group_.rank_name(self), " waits here for ", group_.rank_name(rank))});
  }
  while (!open.empty()) {
    const Step step = std::move(open.back());
    open.pop_back();
    if (seen[static_cast<std::size_t>(step.rank)]) continue;
    seen[static_cast<std::size_t>(step.rank)] = true;
    const auto waits = read_wait_elsewhere(group_.control().member(step.rank), group_.size());
    if (!waits) continue;
    const std::string text = detail::concatenate(step.text, ", which waits in call #", waits->sequence,
                                                 " of group '", waits->group, "' for ");
    for (const int next : waits->missing) {
      if (next != self) {
        open.push_back({next, step.length + 1, text + group_.rank_name(next)});
        continue;
      }
      Cycle cycle{text + group_.rank_name(self), false};
      // Of two ranks it is known from both sides that the calls stand behind the waits.
      const bool theirs = waits->queued_behind != 0 && waits->queued_behind <= sequence_;
      bool ours = false;
      for_each_other(group_, [&](const Group& other) {
        if (other.options().group_name != waits->group) return;
        const std::uint64_t first = other.first_queued_here();
        ours = ours || (first != 0 && first <= waits->sequence);
      });
      cycle.certain = step.length == 1 && theirs && ours;
      return cycle;
    }
  }
  return std::nullopt;
}

}  // namespace neuron

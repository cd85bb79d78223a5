// Fork: a child of a process that has used the engine must not use it, nor harm its parent.
//
// The child has no threads of ours, and locks may be held by threads that it does not have. So whatever the
// engine does in a child starts with in_forked_child(), before any lock.
#pragma once

#include <atomic>

namespace neuron {

namespace detail {
extern std::atomic<bool> forked_child;
}

// True in a child that was forked after arm_fork_guard(). One relaxed load.
inline bool in_forked_child() { return detail::forked_child.load(std::memory_order_relaxed); }

// From now on children count as forked. Called by whatever starts threads or maps device memory. Idempotent.
void arm_fork_guard();

// The child closes `fd`, so that it does not keep device memory alive. Beyond some thousand descriptors the
// rest is left to exec's close-on-exec.
void close_in_child(int fd);
// Before the owner closes `fd` itself.
void forget_in_child(int fd);

}  // namespace neuron

// Mutex: std::mutex with the annotations of clang's thread-safety analysis, which clang-tidy checks. GCC
// ignores them.
//
// Data guarded by a mutex says so: `int count_ GUARDED_BY(mutex_);`. No lock is held while a command, a copy
// or a callback runs.
#pragma once

#include <mutex>

#if defined(__clang__)
#define NEURON_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define NEURON_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(x) NEURON_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY NEURON_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) NEURON_THREAD_ANNOTATION(guarded_by(x))
#define PT_GUARDED_BY(x) NEURON_THREAD_ANNOTATION(pt_guarded_by(x))
#define REQUIRES(...) NEURON_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) NEURON_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) NEURON_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) NEURON_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define EXCLUDES(...) NEURON_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS NEURON_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace neuron {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace neuron

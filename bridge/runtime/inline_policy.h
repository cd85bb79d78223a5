// When compute runs on the submitting thread: NEURON_EMU_INLINE, and what "auto" means.
//
// Running ahead pays only where a core is free for it. auto: always inline, when the job's workers and their
// intra-op threads fill the machine; otherwise by what else is runnable on it, looked at again every few
// milliseconds. Results are the same either way; only who computes them changes.
#pragma once

namespace neuron::bridge {

// Decides for the process, once, when the module is loaded.
void choose_inline_policy();

// Fixes the choice from now on, for tests and benchmarks.
void fix_inline_policy(bool always);

// Called at submissions; looks at the machine when it is time to. Any thread.
void review_inline_policy();

}  // namespace neuron::bridge

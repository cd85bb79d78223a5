// When compute runs on the submitting thread: NEURON_EMU_INLINE, and what "auto" means.
#pragma once

namespace neuron::bridge {

// Decides once for the process. auto: always, when the job's workers and their intra-op threads leave no core to run
// ahead on; else never.
void choose_inline_policy();

}  // namespace neuron::bridge

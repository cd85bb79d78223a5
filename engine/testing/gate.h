// Gate: holds a command until the test opens it. Tests prove order with gates, never with sleeps.
//
// A Gate may go while commands still pass it: they share its state.
#pragma once

#include <memory>

#include "engine/device/command.h"

namespace neuron {

class Gate {
 public:
  Gate();
  // Lets everybody through, now and later.
  void open();
  // Blocks until the gate is open.
  void pass();
  // Blocks until somebody has come to pass().
  void wait_for_arrival();

  // A command that passes the gate.
  std::unique_ptr<Command> command(RunMode mode = RunMode::kQueued);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace neuron

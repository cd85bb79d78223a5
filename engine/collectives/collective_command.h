// CollectiveCommand: requests of one unit as a command on a stream. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/device/command.h"

namespace neuron {

class CollectiveCommand final : public Command {
 public:
  // The requests have the numbers work->sequence(), +1, …
  CollectiveCommand(std::shared_ptr<Communicator> communicator, std::shared_ptr<Work> work,
                    std::vector<CollectiveRequest> requests);

  // Runs them in order, until the first fails.
  Status run(Stream& stream) override;
  // This rank cannot do its part: the group is told why, and fails.
  void skip(Stream& stream, const StreamError& error) override;
  std::string origin() const override { return work_->summary().origin; }

 private:
  void finish(Status status);

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Work> work_;
  std::vector<CollectiveRequest> requests_;
};

}  // namespace neuron

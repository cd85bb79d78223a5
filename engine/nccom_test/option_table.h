// The table of options: their names, their help, and what each does to the Options.
#pragma once

#include <span>
#include <string_view>

#include "engine/nccom_test/argument_list.h"
#include "engine/nccom_test/options.h"

namespace neuron::nccom_test {

struct OptionEntry {
  std::string_view name;        // "--nworkers"
  std::string_view short_name;  // "-r"; empty: none
  std::string_view value;       // as the help shows it; empty: takes none
  std::string_view help;
  // Takes its values from the list. `name` is as the user wrote it.
  Status (*apply)(Options& options, ArgumentList& rest, std::string_view name);
};
std::span<const OptionEntry> option_table();

// Options of AWS's tool that mean nothing here.
struct ForeignOption {
  std::string_view name;
  std::string_view short_name;
  std::string_view reason;  // and what to do instead
};
std::span<const ForeignOption> foreign_options();

}  // namespace neuron::nccom_test

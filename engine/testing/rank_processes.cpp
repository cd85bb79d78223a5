#include "engine/testing/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/testing/device_fixtures.h"

namespace neuron {

namespace {

constexpr char kProgramVariable[] = "NEURON_TEST_RANK_PROGRAM";
constexpr auto kPoll = std::chrono::milliseconds(2);

std::map<std::string, std::function<int(RankProcess&)>>& programs() {
  static std::map<std::string, std::function<int(RankProcess&)>> all;
  return all;
}

std::string path_of_mark(const std::string& directory, const std::string& name) {
  return directory + "/mark-" + name;
}

void write_mark(const std::string& directory, const std::string& name) {
  std::ofstream file(path_of_mark(directory, name));
  NEURON_CHECK(file.good(), "cannot write the mark ", name);
}

bool wait_until(const std::function<bool()>& done, std::chrono::seconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!done()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

// "name rank size directory"
struct Role {
  std::string program;
  int rank = 0;
  int size = 0;
  std::string directory;
};

pid_t spawn(const Role& role, const std::string& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  const std::string variable = detail::concatenate(kProgramVariable, "=", role.program, " ", role.rank, " ",
                                                   role.size, " ", role.directory);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  char self[] = "/proc/self/exe";
  char* const arguments[] = {self, nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, self, &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  NEURON_CHECK(error == 0, "posix_spawn failed with ", error);
  return pid;
}

}  // namespace

std::shared_ptr<Communicator> RankProcess::join(CommunicatorOptions options) const {
  if (options.group_name.empty()) options.group_name = "test";
  options.rank = rank;
  options.size = size;
  options.core = &core;
  DirectoryBootstrap bootstrap(directory);
  Result<std::shared_ptr<Communicator>> communicator = Communicator::create(options, bootstrap);
  if (!communicator.is_ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().message().c_str());
    std::_Exit(99);
  }
  return std::move(communicator).value();
}

void RankProcess::set_mark(const std::string& name) const { write_mark(directory, name); }

std::string RankProcess::mark_path(const std::string& name) const { return path_of_mark(directory, name); }

bool RankProcess::has_mark(const std::string& name) const { return std::filesystem::exists(mark_path(name)); }

void RankProcess::wait_for_mark(const std::string& name) const {
  const auto there = [&] { return has_mark(name); };
  NEURON_CHECK(wait_until(there, std::chrono::seconds(120)), "nobody set the mark ", name);
}

RankProgram::RankProgram(std::string name, std::function<int(RankProcess&)> body) {
  programs().emplace(std::move(name), std::move(body));
}

std::optional<int> run_rank_program() {
  const char* text = std::getenv(kProgramVariable);
  if (text == nullptr) return std::nullopt;
  Role role;
  std::istringstream(text) >> role.program >> role.rank >> role.size >> role.directory;
  const auto program = programs().find(role.program);
  if (program == programs().end()) {
    std::fprintf(stderr, "no rank program '%s'\n", role.program.c_str());
    return 98;
  }
  CoreOptions options;
  options.logical_core = role.rank;
  options.memory_limit = std::size_t{256} << 20;
  const std::unique_ptr<Core> core = make_test_core(options);
  RankProcess process{role.rank, role.size, role.directory, *core};
  return program->second(process);
}

RankProcesses::RankProcesses(const std::string& program, int size) {
  std::string pattern = (std::filesystem::temp_directory_path() / "neuron-ranks-XXXXXX").string();
  NEURON_CHECK(mkdtemp(pattern.data()) != nullptr, "no temporary directory");
  directory_ = pattern;
  for (int rank = 0; rank < size; ++rank)
    pids_.push_back(spawn({program, rank, size, directory_}, output_path(rank)));
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    if (pid == 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string RankProcesses::output_path(int rank) const {
  return directory_ + "/stderr-" + std::to_string(rank);
}

void RankProcesses::signal(int rank, int number) const {
  NEURON_CHECK(pid(rank) != 0 && kill(pid(rank), number) == 0, "no process to signal");
}

void RankProcesses::set_mark(const std::string& name) const { write_mark(directory_, name); }

bool RankProcesses::wait_for_mark(const std::string& name, std::chrono::seconds limit) const {
  return wait_until([&] { return std::filesystem::exists(path_of_mark(directory_, name)); }, limit);
}

ProcessOutcome RankProcesses::wait(int rank, std::chrono::seconds limit) {
  ProcessOutcome outcome;
  int status = 0;
  pid_t& pid = pids_[static_cast<std::size_t>(rank)];
  outcome.ended = wait_until([&] { return waitpid(pid, &status, WNOHANG) == pid; }, limit);
  if (outcome.ended) {
    pid = 0;
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  }
  std::ifstream file(output_path(rank));
  std::ostringstream text;
  text << file.rdbuf();
  outcome.output = text.str();
  return outcome;
}

}  // namespace neuron

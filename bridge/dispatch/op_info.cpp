#include "bridge/dispatch/op_info.h"

#include <algorithm>

namespace neuron::bridge {

namespace {

bool is_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType &&
         type.expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::TensorType;
}

const c10::Type* list_element(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::ListType) return type.expectRef<c10::ListType>().getElementType().get();
  if (type.kind() == c10::TypeKind::OptionalType) {
    return list_element(*type.expectRef<c10::OptionalType>().getElementType());
  }
  return nullptr;
}

bool is_number(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    return is_number(*type.expectRef<c10::OptionalType>().getElementType());
  }
  return type.kind() == c10::TypeKind::NumberType || type.kind() == c10::TypeKind::FloatType;
}

bool is_generator(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    return is_generator(*type.expectRef<c10::OptionalType>().getElementType());
  }
  return type.kind() == c10::TypeKind::GeneratorType;
}

ArgumentKind kind_of(const c10::Type& type) {
  if (is_generator(type)) return ArgumentKind::kGenerator;
  if (is_tensor(type)) return ArgumentKind::kTensor;
  if (const c10::Type* element = list_element(type)) {
    if (is_tensor(*element)) return ArgumentKind::kTensorList;
    if (is_number(*element)) return ArgumentKind::kScalarList;
    return ArgumentKind::kValue;
  }
  return is_number(type) ? ArgumentKind::kScalar : ArgumentKind::kValue;
}

// The overload whose arguments are ours followed by one out argument for each of our returns.
std::optional<c10::OperatorHandle> find_out_overload(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string& overload = schema.overload_name();
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> candidates;
  if (!overload.empty()) {
    candidates.push_back(overload + "_out");
    candidates.push_back(overload + "_output");
  }
  candidates.push_back("out");
  candidates.push_back("output");
  candidates.push_back("grad_input");
  for (const auto& candidate : candidates) {
    auto found = dispatcher.findSchema({schema.name(), candidate});
    if (!found) continue;
    const auto& out_arguments = found->schema().arguments();
    const auto& arguments = schema.arguments();
    if (out_arguments.size() != arguments.size() + schema.returns().size()) continue;
    bool same = true;
    for (std::size_t i = 0; same && i < arguments.size(); ++i) {
      same = *arguments[i].type() == *out_arguments[i].type();
    }
    if (same) return found;
  }
  return std::nullopt;
}

bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key);
}

// Operators whose output's size is computed from the values of their scalars.
bool is_range(const std::string& name) {
  return name == "aten::arange" || name == "aten::range" || name == "aten::linspace" ||
         name == "aten::logspace";
}

// Their meta functions choose strides by the device, and do not know that the kernel is the CPU's.
bool asks_for_the_device(const std::string& name) {
  return name.rfind("aten::linalg_", 0) == 0 || name.rfind("aten::_linalg_", 0) == 0;
}

// Their out= forms do not do what the functional ones do. The losses give the result the size of the operands
// for a while, which memory of a fixed size does not allow; batch norm's leaves the mean of an input that is
// not contiguous unwritten.
bool has_another_out_form(const std::string& name) {
  return name == "aten::mse_loss" || name == "aten::smooth_l1_loss" || name == "aten::huber_loss" ||
         name == "aten::binary_cross_entropy" || name == "aten::native_batch_norm" ||
         name == "aten::_native_batch_norm_legit";
}

// They look at memory beside the tensor's own elements, counted from where its storage begins.
bool looks_into_the_storage(const std::string& name) { return name.rfind("aten::as_strided_", 0) == 0; }

// Torch tags some operators, and of others only the functional form.
bool is_pointwise(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (op.hasTag(at::Tag::pointwise) || schema.name().rfind("aten::_foreach_", 0) == 0) return true;
  std::string name = schema.name(), overload = schema.overload_name();
  if (name.ends_with("_")) name.pop_back();
  if (overload.ends_with("_out")) overload.resize(overload.size() - 4);
  for (const std::string& form : {overload, std::string(), std::string("Tensor")}) {
    const auto functional = c10::Dispatcher::singleton().findSchema({name, form});
    if (functional && functional->hasTag(at::Tag::pointwise)) return true;
  }
  return false;
}

bool holds_numbers(const c10::Argument& argument) {
  return is_tensor(*argument.type()) && (argument.name() == "lr" || argument.name() == "scalars");
}

const c10::AliasInfo* written_alias(const c10::Argument& argument) {
  const c10::AliasInfo* info = argument.alias_info();
  return info != nullptr && info->isWrite() ? info : nullptr;
}

}  // namespace

bool is_host_scalar(const at::Tensor& tensor, const ArgumentInfo& argument) {
  return tensor.device().is_cpu() && (tensor.dim() == 0 || (argument.holds_numbers && tensor.numel() == 1));
}

OpInfo::OpInfo(const c10::OperatorHandle& handle) : op(handle) {
  const auto& schema = handle.schema();
  const std::string full =
      schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  name = (new std::string(full))->c_str();
  for (const auto& argument : schema.arguments()) {
    arguments.push_back({.kind = kind_of(*argument.type()),
                         .written = written_alias(argument) != nullptr,
                         .is_out = argument.is_out(),
                         .holds_numbers = holds_numbers(argument)});
  }
  returns = schema.returns().size();
  structured = has_kernel(handle, c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
               !asks_for_the_device(schema.name());
  scalars_by_value = is_range(schema.name());
  random = std::any_of(arguments.begin(), arguments.end(), [](const ArgumentInfo& argument) {
    return argument.kind == ArgumentKind::kGenerator;
  });
  pointwise = is_pointwise(handle);
  const bool writes = std::any_of(arguments.begin(), arguments.end(),
                                  [](const ArgumentInfo& argument) { return argument.written; });
  find_returned_arguments();
  style = OutputStyle::kFunctional;
  if (writes && returned_arguments.size() == returns) {
    style = OutputStyle::kWritesArguments;
    return;
  }
  if (looks_into_the_storage(schema.name())) obstacle = "it looks into its argument's storage";
  if (!returned_arguments.empty()) {
    obstacle = "it returns arguments and new tensors together";
    return;
  }
  check_returns();
  if (writes || has_another_out_form(schema.name())) return;
  if (auto out = find_out_overload(handle); out && has_kernel(*out, c10::DispatchKey::CPU)) {
    style = OutputStyle::kOutOverload;
    out_overload = out;
  }
}

void OpInfo::find_returned_arguments() {
  const auto& schema = op.schema();
  for (const auto& result : schema.returns()) {
    const c10::AliasInfo* returned = written_alias(result);
    if (returned == nullptr) continue;
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* taken = written_alias(schema.arguments()[i]);
      if (taken == nullptr || taken->beforeSets() != returned->beforeSets()) continue;
      returned_arguments.push_back(i);
      break;
    }
  }
}

void OpInfo::check_returns() {
  const auto& results = op.schema().returns();
  const bool one_list = results.size() == 1 && list_element(*results[0].type()) != nullptr &&
                        is_tensor(*list_element(*results[0].type()));
  for (const auto& result : results) {
    if (result.alias_info() != nullptr) obstacle = "it returns a view";
    if (!is_tensor(*result.type()) && !one_list) obstacle = "it returns a value that the host needs";
  }
  if (results.empty()) obstacle = "it returns nothing and writes nothing";
}

}  // namespace neuron::bridge

#include "bridge/ops/own_operators.h"

#include <string>
#include <unordered_set>

namespace neuron::bridge {

bool is_own_operator(const c10::OperatorName& name) {
  static const std::unordered_set<std::string> kOwn = {
      "aten::empty",
      "aten::empty_strided",
      "aten::as_strided",
      "aten::view",
      "aten::unfold",
      "aten::_reshape_alias",
      "aten::resize_",
      "aten::set_",
      "aten::copy_",
      "aten::_copy_from",
      "aten::_copy_from_and_resize",
      "aten::_local_scalar_dense",
      "aten::record_stream",
      "aten::is_set_to",
      "aten::_fused_sdp_choice",
      "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_efficient_attention_backward",
      "aten::is_pinned",
      "aten::_pin_memory",
      "aten::uniform_",
      "aten::normal_",
      "aten::exponential_",
      "aten::random_",
      "aten::native_dropout",
      "aten::new_empty_strided"};
  static const std::unordered_set<std::string> kOwnOverloads = {"aten::bernoulli_.float", "aten::tril.out",
                                                                "aten::triu.out"};
  return kOwn.count(name.name) > 0 || kOwnOverloads.count(name.name + "." + name.overload_name) > 0;
}

}  // namespace neuron::bridge

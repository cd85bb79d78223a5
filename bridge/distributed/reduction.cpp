#include "bridge/distributed/reduction.h"

#include <c10/util/Exception.h>

#include "bridge/rules/rules.h"

namespace neuron::bridge {

namespace {

ReduceOp engine_op(c10d::ReduceOp::RedOpType op, const char* call) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBand;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPremulSum;
    case c10d::ReduceOp::UNUSED:
      break;
  }
  C10_THROW_ERROR(ValueError, c10::str(call, ": unknown reduce operation ", static_cast<int>(op)));
}

bool unconfirmed(ReduceOp op) {
  return op == ReduceOp::kProduct || op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
}

}  // namespace

Reduction translate(const c10d::ReduceOp& op, const at::Tensor& reduced, const char* call) {
  Reduction out;
  out.op = engine_op(op.op_, call);
  if (unconfirmed(out.op))
    check_rule(RuleId::kReduceOperator, std::string(call) + " with " + reduce_op_name(out.op));
  if (out.op != ReduceOp::kPremulSum) return out;
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, call, ": PREMUL_SUM without a factor");
  out.factor = supplement->double_factor;
  if (supplement->tensor_factor.defined()) {
    out.factor_tensor = supplement->tensor_factor.to(reduced.options(), /*non_blocking=*/true);
  }
  return out;
}

}  // namespace neuron::bridge

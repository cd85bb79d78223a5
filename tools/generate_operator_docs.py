"""Writes docs/operators.md from the report of a sweep over every operator of torch.testing.

python tests/ops/op_sweep.py --report build/operators.jsonl
python tools/generate_operator_docs.py build/operators.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "operators.md"
sys.path.append(str(ROOT / "tests" / "ops"))

from op_verdict import reasons, verdict  # noqa: E402

Result = dict[str, Any]
DTYPES = ("float32", "bfloat16", "int64", "bool", "complex64")
_SIGNS = {"passed": "yes", "refused": "refused", "different": "differs", "failed": "FAILS"}

_INTRODUCTION = """\
# Operators

<!-- Written by tools/generate_operator_docs.py from a run of tests/ops/op_sweep.py. -->

What runs on the CPU runs on `neuron`: the device runs PyTorch's CPU kernels on its own memory, in stream order
([dispatch.md](dispatch.md)). This is what a sweep over PyTorch's own samples found (`torch.testing`'s OpInfo, foreach
operators included). An entry is an operator with a type that its CPU kernel takes. For each of its samples these have
to equal the CPU's: values, bit for bit or within `torch.testing.assert_close`; type, shape and strides of results;
which inputs a result shares memory with; what is written to arguments; gradients; `out=` (as the call makes it, empty,
and strided); the in-place form; all that for strided inputs; and the type and message of errors. Of random
operators the numbers are the device's own: type, shape and strides are compared, and that a seed repeats them.

"""

_OUTSIDE = """\
## Outside of the sweep

- Sparse tensors (COO, CSR and its kin) and nested ones of the strided layout run the CPU's kernels where it has them,
  on the caller, after a drain. Nested tensors of the jagged layout run as ordinary operators; PyTorch does their
  attention by way of the strided layout on devices that it does not know.
- Quantized and mkldnn tensors are refused with an error that names the operator and what to do.
- An operator without a CPU kernel (a custom one for CUDA only, say) is refused likewise.
- `scaled_dot_product_attention` takes the CPU's flash kernel and its backward wherever the CPU does. A DTensor reaches
  it as `_scaled_dot_product_efficient_attention`, for which DTensor and context parallelism have rules;
  for the gradients of grouped heads (`enable_gqa`) it has none, and that is refused.
- Host and device tensors do not mix, but for CPU scalars without dimensions and CPU indices, as on other accelerators.
- Errors that types and shapes show are raised at the call. What only the data shows (an index out of range) is raised
  when the device is next waited for; `torch.linalg`'s checks wait, as on other accelerators, and raise at the call.

"""


def render(results: dict[str, Result]) -> str:
    verdicts = {entry: verdict(result) for entry, result in results.items()}
    by_operator: dict[str, dict[str, str]] = defaultdict(dict)
    for entry, word in verdicts.items():
        name, _, dtype = entry.rpartition("/")
        by_operator[name][dtype] = word
    parts = [_INTRODUCTION, _figures(results, verdicts), _refused(results), _different(results), _OUTSIDE]
    return "".join(parts) + _every_operator(by_operator)


def _figures(results: dict[str, Result], verdicts: dict[str, str]) -> str:
    lines = ["## Figures\n", "| type | entries | equal the CPU | refused | differ, for a reason | fail |"]
    lines.append("|---|---|---|---|---|---|")
    for dtype in DTYPES:
        words = Counter(word for entry, word in verdicts.items() if entry.endswith(f"/{dtype}"))
        counts = (sum(words.values()), *(words[word] for word in ("passed", "refused", "different", "failed")))
        lines.append(f"| {dtype} | " + " | ".join(map(str, counts)) + " |")
    checks = sum(sum(result.get("passed", {}).values()) for result in results.values())
    return "\n".join(lines) + f"\n\nMore than {checks // 1000} thousand comparisons held.\n\n"


def _refused(results: dict[str, Result]) -> str:
    entries: dict[str, set[str]] = defaultdict(set)
    for entry, result in results.items():
        for refusal in result.get("refusals", []):
            reason = re.search(r"neuron does not .*|neuron runs .*", refusal["error"])
            entries[reason.group() if reason else refusal["error"]].add(entry.rpartition("/")[0])
    if not entries:
        return ""
    lines = ["## Refused, and why\n", "| operators | the error says |", "|---|---|"]
    lines += [f"| {_names(names)} | {_cell(reason)} |" for reason, names in sorted(entries.items())]
    return "\n".join(lines) + "\n\n"


def _different(results: dict[str, Result]) -> str:
    entries: dict[str, set[str]] = defaultdict(set)
    for entry, result in results.items():
        for reason in reasons(result):
            entries[reason].add(entry)
    lines = ["## Other than the CPU, and why\n", "| entries | reason |", "|---|---|"]
    lines += [f"| {_names(names)} | {_cell(reason)} |" for reason, names in sorted(entries.items())]
    return "\n".join(lines) + "\n\n"


def _every_operator(by_operator: dict[str, dict[str, str]]) -> str:
    lines = ["## Every operator\n", "| operator | " + " | ".join(DTYPES) + " |", "|---" * (len(DTYPES) + 1) + "|"]
    for name, words in sorted(by_operator.items()):
        signs = (_SIGNS[words[dtype]] if dtype in words else "" for dtype in DTYPES)
        lines.append(f"| `{name}` | " + " | ".join(signs) + " |")
    return "\n".join(lines) + "\n\nEmpty: the CPU's kernel does not take the type.\n"


def _names(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    results = {}
    for line in Path(sys.argv[1]).read_text().splitlines():
        result = json.loads(line)
        results[result["entry"]] = result
    OUTPUT.write_text(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Operators: each gives what the CPU gives, under both ways to run a command, at the first call and at later ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparison import assert_matches_cpu, assert_raises_as_cpu, assert_same

from neuron_emu import _C

_GENERATOR = torch.Generator().manual_seed(7)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=_GENERATOR).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 50, shape, generator=_GENERATOR).to(dtype)
    return torch.randn(shape, generator=_GENERATOR, dtype=dtype if dtype.is_complex else torch.float32).to(dtype)


def ints(*shape: int, high: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=_GENERATOR)


A, B = rand(4, 6), rand(4, 6)
POSITIVE = rand(4, 6).abs() + 0.1
MASK = rand(4, 6, dtype=torch.bool)
SQUARE = rand(5, 5)
SPD = SQUARE @ SQUARE.T + 5 * torch.eye(5)
OUTS = tuple(torch.empty(0, dtype=dtype) for dtype in (torch.float32, torch.float32, torch.int64, torch.float32))
COMPLEX = rand(3, dtype=torch.complex64), rand(3, dtype=torch.complex64)

EXACT: dict[str, tuple[Any, ...]] = {
    # pointwise
    "add": (torch.add, A, B),
    "add_alpha": (lambda a, b: torch.add(a, b, alpha=3), A, B),
    "add_python_scalar": (lambda a: a + 2.5, A),
    "rsub": (lambda a: 1 - a, A),
    "mul_broadcast": (torch.mul, A, rand(6)),
    "mul_broadcast_both": (torch.mul, rand(4, 1, 3), rand(5, 1)),
    "div": (torch.div, A, POSITIVE),
    "floor_divide": (lambda a, b: a // b, rand(9, dtype=torch.int64), ints(9, high=7) + 1),
    "div_rounding": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), A, POSITIVE),
    "remainder": (torch.remainder, A, POSITIVE),
    "pow": (lambda a: a**3, A),
    "pow_tensor": (torch.pow, POSITIVE, A),
    "rpow": (lambda a: 2**a, A),
    "exp_log": (lambda a: a.exp().log(), A),
    "sqrt_rsqrt": (lambda a: (a.sqrt(), a.rsqrt()), POSITIVE),
    "tanh_sigmoid": (lambda a: (a.tanh(), a.sigmoid()), A),
    "abs_neg_sign": (lambda a: (a.abs(), -a, a.sign()), A),
    "clamp": (lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=0), a.clamp(max=0)), A),
    "clamp_tensor": (torch.clamp, A, A - 0.1, A + 0.1),
    "where": (torch.where, MASK, A, B),
    "where_scalar": (lambda m, a: torch.where(m, a, 0.0), MASK, A),
    "masked_fill": (lambda a, m: a.masked_fill(m, -1.0), A, MASK),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), A, B),
    "addcmul_addcdiv": (lambda a, b, p: (torch.addcmul(a, b, p, value=2), torch.addcdiv(a, b, p)), A, B, POSITIVE),
    "comparisons": (lambda a, b: (a < b, a >= b, a == b, a != 0, torch.maximum(a, b), torch.minimum(a, b)), A, B),
    "logical": (lambda m, n: (m & n, m | n, m ^ n, ~m, torch.logical_and(m, n)), MASK, rand(4, 6, dtype=torch.bool)),
    "bitwise": (lambda a, b: (a & b, a | b, a << 2, a >> 1), rand(9, dtype=torch.int32), rand(9, dtype=torch.int32)),
    "isfinite": (
        lambda a: (a.isnan(), a.isinf(), a.isfinite(), a.nan_to_num()),
        torch.tensor([1.0, float("nan"), float("inf")]),
    ),
    "erf": (torch.erf, A),
    "round_floor": (lambda a: (a.round(), a.floor(), a.ceil(), a.trunc(), a.frac(), a.round(decimals=1)), A * 10),
    "conj_physical": (
        lambda c: (torch.conj_physical(c), c.conj_physical_(), c.t().conj_physical()),
        rand(2, 3, dtype=torch.complex64),
    ),
    "expanded_bf16": (lambda a, s: s.expand(3, 4) * a.t(), rand(4, 3).bfloat16(), rand(1).bfloat16()),
    "as_strided_copy": (lambda a: torch.as_strided_copy(a[1:, ::2], (2, 2), (2, 1), 3), rand(4, 6)),
    "mode_out": (lambda a, v, i: torch.mode(a, out=(v, i)), rand(4, 6), torch.empty(0), torch.empty(0).long()),
    "out_grows": (lambda a, o: torch.cholesky_inverse(a, out=o), SPD, torch.empty(0)),
    "complex": (lambda c: (c.abs(), c.angle(), c * c, c.real, c.conj() + 1), rand(5, dtype=torch.complex64)),
    "complex_make": (lambda a, b: (torch.complex(a, b), torch.polar(a, b)), POSITIVE, B),
    "sparse_free_eq": (lambda a: torch.equal(a, a + 0), A),
    "allclose": (lambda a: torch.allclose(a, a + 1e-9), A),
    # type promotion
    "promote_int_float": (torch.add, rand(5, dtype=torch.int32), rand(5)),
    "promote_half_float": (torch.mul, rand(5, dtype=torch.float16), rand(5)),
    "promote_bool_int": (torch.add, rand(5, dtype=torch.bool), rand(5, dtype=torch.uint8)),
    "promote_bf16_scalar": (lambda a: a * 2.0, rand(5, dtype=torch.bfloat16)),
    "promote_int_scalar": (lambda a: (a * 2, a * 2.0, a / 2, a * True), rand(5, dtype=torch.int16)),
    "promote_zero_dim": (
        lambda a, s: (a + s, s + a),
        rand(5, dtype=torch.float16),
        torch.tensor(2.0, dtype=torch.float64),
    ),
    "promote_complex": (lambda a: a * 1j, A),
    # reductions
    "sum": (lambda a: (a.sum(), a.sum(0), a.sum((0, 1)), a.sum(1, keepdim=True)), A),
    "sum_dtype": (lambda a: (a.sum(dtype=torch.float64), a.to(torch.int8).sum()), A),
    "mean_var": (lambda a: (a.mean(), a.mean(1), a.var(), a.var(0, unbiased=False), a.std(1)), A),
    "var_mean": (lambda a: torch.var_mean(a, dim=0, correction=1), A),
    "max_min": (lambda a: (a.max(), a.min(), *a.max(1), *a.min(0, keepdim=True), a.amax(0), a.aminmax()[0]), A),
    "arg": (lambda a: (a.argmax(), a.argmin(1), a.argsort(1)), A),
    "prod_all_any": (lambda a, m: (a.prod(), a.prod(1), m.all(), m.any(), m.all(0), m.any(1)), A, MASK),
    "norm": (lambda a: (a.norm(), a.norm(dim=1), a.norm(p=1), torch.linalg.vector_norm(a, 3)), A),
    "cum": (lambda a: (a.cumsum(0), a.cumprod(1), *a.cummax(1), a.logcumsumexp(0)), A),
    "logsumexp_softmax": (
        lambda a: (a.logsumexp(1), a.softmax(1), a.log_softmax(0), a.softmax(1, dtype=torch.float64)),
        A,
    ),
    "sort_topk": (lambda a: (*a.sort(1), *a.sort(0, descending=True), *a.topk(3), *a.kthvalue(2)), A),
    "median_mode": (lambda a: (a.median(), *a.median(1), *a.mode(0), a.nanmedian(), a.quantile(0.3)), A),
    "unique": (lambda a: torch.unique(a, return_inverse=True, return_counts=True), ints(20, high=6)),
    "bincount_histc": (lambda a: (a.bincount(), a.bincount(minlength=12), torch.histc(a.float(), 5)), ints(20, high=6)),
    "count_nonzero": (lambda m: (m.count_nonzero(), m.nonzero(), *m.nonzero(as_tuple=True)), MASK),
    # indexing
    "index_basic": (lambda a: (a[1], a[1:3], a[:, ::2], a[-1, 2], a[..., None], a[None]), A),
    "index_tensor": (lambda a, i: (a[i], a[:, i], a[i, i]), A, torch.tensor([0, 3, 1])),
    "index_mask": (lambda a, m: (a[m], a[m[:, 0]], a.masked_select(m)), A, MASK),
    "index_set": (lambda a, i: a.__setitem__(i, 5.0), A, torch.tensor([0, 2])),
    "index_set_mask": (lambda a, m: a.__setitem__(m, 5.0), A, MASK),
    "index_set_values": (lambda a, m, v: a.__setitem__((slice(None), 2), v), A, MASK, rand(4)),
    "index_put_accumulate": (
        lambda a, i, v: a.index_put_((i,), v, accumulate=True),
        A,
        torch.tensor([0, 0, 1]),
        rand(3, 6),
    ),
    "index_ops": (
        lambda a, i, v: (a.index_select(0, i), a.index_add(0, i, v), a.index_copy(0, i, v), a.index_fill(0, i, 3.0)),
        A,
        torch.tensor([0, 2]),
        rand(2, 6),
    ),
    "gather_scatter": (
        lambda a, i, v: (
            a.gather(1, i),
            a.scatter(1, i, v),
            a.scatter_add(1, i, v),
            a.scatter(1, i, 2.0),
            a.scatter_reduce(1, i, v, "amax"),
        ),
        A,
        ints(4, 3, high=6),
        rand(4, 3),
    ),
    "take": (lambda a, i: (a.take(i), torch.take_along_dim(a, a.argsort(0), 0)), A, torch.tensor([0, 5, 23])),
    "masked_scatter": (lambda a, m, v: a.masked_scatter(m, v), A, MASK, rand(30)),
    "searchsorted": (lambda a, v: (torch.searchsorted(a, v), torch.bucketize(v, a)), rand(9).sort().values, rand(5)),
    # shapes
    "cat_stack": (lambda a, b: (torch.cat([a, b]), torch.cat([a, b], 1), torch.stack([a, b], 1)), A, B),
    "cat_dtypes": (lambda a, b: torch.cat([a, b]), A, rand(2, 6, dtype=torch.int32)),
    "cat_empty": (lambda a, b: torch.cat([a, b]), A, torch.empty(0, 6)),
    "split_chunk": (lambda a: (*a.split(4, 1), *a.chunk(3), *a.unbind(0), *torch.tensor_split(a, 3, 1)), A),
    "split_with_sizes_copy": (lambda a: torch.split_with_sizes_copy(a, [1, 2, 1]), A),
    "views": (
        lambda a: (
            a.view(6, 4),
            a.t(),
            a.transpose(0, 1),
            a.permute(1, 0),
            a.reshape(-1),
            a.unsqueeze(1),
            a.flatten(),
            a.expand(3, 4, 6),
            a.unfold(1, 3, 2),
            a.diagonal(),
            a.narrow(1, 1, 3),
            a.select(0, 2),
            a.movedim(0, 1),
        ),
        A,
    ),
    "view_dtype": (lambda a: (a.view(torch.int32), a.view(torch.int16)), A),
    "as_strided": (lambda a: a.as_strided((3, 2), (2, 5), 1), A),
    "reshape_copy": (lambda a: a.t().reshape(-1), A),
    "flip_roll": (lambda a: (a.flip(1), a.roll(2, 1), a.rot90()), A),
    "repeat": (lambda a: (a.repeat(2, 3), a.repeat_interleave(2, 0), a.tile(2, 1)), A),
    "repeat_interleave_tensor": (lambda a, n: a.repeat_interleave(n, 0), A, torch.tensor([1, 0, 2, 1])),
    "tri": (lambda a: (a.tril(), a.triu(1), torch.diag(a[0]), torch.diag_embed(a)), A),
    "meshgrid_outer": (
        lambda a, b: (*torch.meshgrid(a, b, indexing="ij"), torch.outer(a, b), torch.kron(a, b)),
        rand(3),
        rand(4),
    ),
    "pad": (
        lambda a: (torch.nn.functional.pad(a, (1, 2)), torch.nn.functional.pad(a[None], (1, 1), mode="reflect")),
        A,
    ),
    "clone_formats": (
        lambda a: (a.clone(), a.t().clone(), a.t().contiguous(), a.t().clone(memory_format=torch.contiguous_format)),
        A,
    ),
    "empty_operands": (lambda e: (e + 1, e.sum(), e.sum(0), e @ e.t(), torch.cat([e, e])), torch.empty(0, 3)),
    "one_hot": (lambda i: torch.nn.functional.one_hot(i, 6), ints(5, high=6)),
    # in place, out=
    "inplace_chain": (lambda a, b: a.add_(1).mul_(b).clamp_(min=0).sub_(b).neg_(), A, B),
    "inplace_view": (lambda a: a[:, 1].add_(10), A),
    "inplace_transposed": (lambda a, b: a.t().mul_(b.t()), A, B),
    "inplace_self": (lambda a: a.mul_(a), A),
    "zero_fill": (lambda a: (a.zero_(), a[0].fill_(3), a[1].fill_(torch.tensor(4.0))), A),
    "out": (lambda a, b, o: torch.add(a, b, out=o), A, B, torch.empty(4, 6)),
    "out_strided": (lambda a, b, o: torch.add(a, b, out=o.t()), A, B, torch.empty(6, 4)),
    "out_resize": (lambda a, b, o: torch.add(a, b, out=o), A, B, torch.empty(0)),
    "out_dtype": (lambda a, b, o: torch.add(a, b, out=o), A, B, torch.empty(4, 6, dtype=torch.float64)),
    "out_pair": (lambda a, v, i: torch.max(a, 1, out=(v, i)), A, torch.empty(4), torch.empty(4, dtype=torch.int64)),
    "out_view_of_input_resizes": (lambda a: torch.mul(a, 2, out=a.unfold(0, 2, 1)), rand(4, 4)),
    "out_alias_of_input": (lambda a: torch.mul(a, 2, out=a), A),
    "index_put_bool": (lambda a, m, v: a.index_put_((m,), v), A, MASK, torch.tensor(2.0)),
    "copysign_": (lambda a, b: a.copysign_(b), A, B),
    "fill_diagonal_": (lambda a: a.fill_diagonal_(9), SQUARE),
    "set_real_imag": (lambda c: (c.real.fill_(1), c.imag.mul_(2)), rand(5, dtype=torch.complex64)),
    # neg and conj bits
    "conj_operand": (
        lambda c: (c.conj() * 2, c.conj().imag + 1, c.conj().resolve_conj()),
        rand(5, dtype=torch.complex64),
    ),
    "neg_bit": (lambda c: c.conj().imag.add_(1), rand(5, dtype=torch.complex64)),
    # foreach
    "foreach": (
        lambda x, y: (
            torch._foreach_add(x, y),
            torch._foreach_mul(x, 2.0),
            torch._foreach_sqrt(torch._foreach_abs(x)),
            torch._foreach_norm(x),
            torch._foreach_addcmul(x, x, y, 0.5),
            torch._foreach_maximum(x, y),
        ),
        [rand(3), rand(2, 2)],
        [rand(3), rand(2, 2)],
    ),
    "foreach_inplace": (
        lambda x, y: (
            torch._foreach_add_(x, y, alpha=2),
            torch._foreach_mul_(x, [2.0, 3.0]),
            torch._foreach_lerp_(x, y, 0.3),
        ),
        [rand(3), rand(2, 2)],
        [rand(3), rand(2, 2)],
    ),
    "foreach_copy": (torch._foreach_copy_, [torch.zeros(3), torch.zeros(2)], [rand(3), rand(2, dtype=torch.float64)]),
    "foreach_tensor_scalar": (lambda x, s: torch._foreach_mul(x, s), [rand(3), rand(2, 2)], torch.tensor(2.0)),
}

# BLAS and the like: the order of additions may follow the alignment of the memory.
CLOSE: dict[str, tuple[Any, ...]] = {
    "mm": (torch.mm, rand(7, 5), rand(5, 3)),
    "mm_transposed": (lambda a, b: a.t() @ b.t(), rand(5, 7), rand(3, 5)),
    "mm_bf16": (torch.mm, rand(7, 5, dtype=torch.bfloat16), rand(5, 3, dtype=torch.bfloat16)),
    "mm_int": (torch.mm, rand(7, 5, dtype=torch.int64), rand(5, 3, dtype=torch.int64)),
    "bmm": (torch.bmm, rand(2, 7, 5), rand(2, 5, 3)),
    "matmul_broadcast": (torch.matmul, rand(2, 1, 7, 5), rand(3, 5, 3)),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), rand(3), rand(7, 5), rand(5, 3)),
    "baddbmm_": (lambda c, a, b: c.baddbmm_(a, b), rand(2, 7, 3), rand(2, 7, 5), rand(2, 5, 3)),
    "mv_dot": (lambda a, v: (a @ v, v @ v, torch.addmv(a[:, 0], a, v)), rand(5, 5), rand(5)),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), rand(2, 7, 5), rand(2, 5, 3)),
    "linalg": (
        lambda a: (torch.linalg.inv(a), torch.linalg.cholesky(a), torch.linalg.det(a), torch.linalg.eigvalsh(a)),
        SPD,
    ),
    "solve": (lambda a, b: (torch.linalg.solve(a, b), torch.linalg.lstsq(a, b).solution), SPD, rand(5, 2)),
    "svd_qr": (lambda a: (torch.linalg.svdvals(a), torch.linalg.qr(a).R.abs()), SQUARE),
    "lstsq_out": (lambda a, b, o: torch.linalg.lstsq(a, b, out=o).solution, rand(4, 3), rand(4, 2), OUTS),
    "lu_solve_turns_its_out": (
        lambda a, p, b, o: torch.linalg.lu_solve(a, p, b, left=False, out=o),
        *torch.linalg.lu_factor(rand(3, 3, dtype=torch.complex64)),
        rand(2, 3, dtype=torch.complex64),
        torch.empty(2, 3, dtype=torch.complex64),
    ),
    "svd_strides": (lambda a: tuple(part.abs() for part in torch.linalg.svd(a)), rand(2, 3, 5)),
    "vdot": (lambda a, b: (torch.vdot(a, b) * 1, torch.vdot(a.conj(), b) * 1), *COMPLEX),
    "vdot_conj": (lambda a, b, o: torch.vdot(a, b.conj(), out=o), *COMPLEX, torch.empty((), dtype=torch.complex64)),
    "fft": (lambda a: (torch.fft.rfft(a).abs(), torch.fft.ifft(torch.fft.fft(a)).real), rand(3, 8)),
    "cdist": (lambda a, b: torch.cdist(a, b), rand(5, 3), rand(4, 3)),
    "cross": (lambda a, b: torch.linalg.cross(a, b), rand(5, 3), rand(5, 3)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([1], [0])), rand(4, 5), rand(5, 2, 3)),
}


@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT.keys())
def test_exact(case: tuple[Any, ...], either_policy: bool) -> None:
    assert_matches_cpu(*case)


@pytest.mark.parametrize("case", CLOSE.values(), ids=CLOSE.keys())
def test_close(case: tuple[Any, ...], either_policy: bool) -> None:
    assert_matches_cpu(*case, exact=False)


FACTORIES = {
    "zeros": lambda device: torch.zeros(2, 3, device=device),
    "ones": lambda device: torch.ones(2, 3, dtype=torch.int32, device=device),
    "full": lambda device: torch.full((2, 3), 2.5, device=device),
    "full_bool": lambda device: torch.full((2,), True, device=device),
    "eye": lambda device: torch.eye(3, 4, device=device),
    "arange": lambda device: torch.arange(7, device=device),
    "arange_float": lambda device: torch.arange(0, 1, 0.1, device=device),
    "arange_negative": lambda device: torch.arange(5, -5, -2, dtype=torch.int16, device=device),
    "linspace": lambda device: torch.linspace(0, 1, 11, device=device),
    "logspace": lambda device: torch.logspace(0, 2, 5, device=device),
    "tensor": lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
    "tensor_scalar": lambda device: torch.tensor(3.5, device=device),
    "as_tensor": lambda device: torch.as_tensor([1.0, 2.0], device=device),
    "tril_indices": lambda device: torch.tril_indices(3, 4, device=device),
    "zeros_like": lambda device: torch.zeros_like(torch.empty(3, 2).t(), device=device),
    "full_like": lambda device: torch.full_like(torch.empty(3, 2, device=device), 4),
    "new_zeros": lambda device: torch.empty(1, device=device).new_zeros(2, 2),
    "new_tensor": lambda device: torch.empty(1, device=device).new_tensor([1, 2]),
    "channels_last": lambda device: torch.zeros(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last),
    "windows": lambda device: (torch.hann_window(8, device=device), torch.hamming_window(8, device=device)),
    "complex": lambda device: torch.zeros(3, dtype=torch.complex64, device=device),
    "empty_size": lambda device: torch.zeros(0, 3, device=device),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_factories(make: Any, either_policy: bool) -> None:
    for _ in range(2):
        assert_same(make("neuron"), make("cpu"))


@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles_into_a_strided_result(name: str, either_policy: bool) -> None:
    """The CPU's own kernel writes past the end of such a result."""
    value = rand(3, 2, 4, 5)
    out = torch.zeros(5, 4, 2, 3, device="neuron").permute(3, 2, 1, 0)
    for diagonal in (0, 1, -2):
        assert getattr(torch, name)(value.to("neuron"), diagonal, out=out) is out
        assert torch.equal(out.cpu(), getattr(torch, name)(value, diagonal))


def test_ranges_by_value() -> None:
    """Ranges have their sizes from the values of scalars: calls that differ in those only must not share a plan."""
    for end in (3, 5, 4.5, 3):
        assert torch.arange(end, device="neuron").tolist() == torch.arange(end).tolist()
        assert torch.linspace(0, end, 4, device="neuron").tolist() == torch.linspace(0, end, 4).tolist()
    for value in (1.0, 2.0, 3):
        assert torch.full((2,), value, device="neuron").tolist() == [value, value]


ERRORS: dict[str, tuple[Any, ...]] = {
    "shape_mismatch": (torch.add, rand(3), rand(4)),
    "mm_mismatch": (torch.mm, rand(3, 4), rand(3, 4)),
    "bad_dim": (lambda a: a.sum(5), A),
    "bad_view": (lambda a: a.view(7), A),
    "bad_view_stride": (lambda a: a.t().view(-1), A),
    "bad_cast_out": (lambda a, o: torch.add(a, a, out=o), A, torch.empty(4, 6, dtype=torch.int32)),
    "triangle_cast_out": (lambda a, o: torch.tril(a, out=o), A, torch.empty(4, 6, dtype=torch.int32)),
    "triangle_of_a_vector": (lambda a, o: torch.tril(a, out=o), rand(4), torch.empty(4)),
    "inplace_cast": (lambda i: i.add_(1.5), rand(3, dtype=torch.int32)),
    "inplace_broadcast": (lambda a, b: a.add_(b), rand(3), rand(2, 3)),
    "not_float": (lambda i: i.mean(), rand(3, dtype=torch.int32)),
    "index_out_of_range": (lambda a: a[7], A),
    "index_tensor_out_of_range": (lambda a, i: a[i], A, torch.tensor([9])),
    "gather_out_of_range": (lambda a, i: a.gather(1, i), A, torch.full((4, 1), 99)),
    "item_of_many": (lambda a: a.item(), A),
    "singular": (torch.linalg.inv, torch.zeros(3, 3)),
    "not_positive_definite": (torch.linalg.cholesky, -torch.eye(3)),
    "cat_mismatch": (lambda a, b: torch.cat([a, b]), rand(2, 3), rand(2, 4)),
    "internal_overlap": (lambda a: a.expand(3, 4).add_(1), rand(4)),
    "out_resizes_over_input": (lambda a: torch.mul(a, 2, out=a.squeeze()), rand(1, 4)),
    "partial_overlap": (lambda a: torch.add(a[:-1], 1, out=a[1:]), rand(5)),
    "leaf_requires_grad": (lambda a: a.add_(1), rand(3).requires_grad_()),
    "bool_of_many": (lambda a: bool(a), A),
    "embedding_out_of_range": (torch.nn.functional.embedding, torch.tensor([11]), rand(10, 3)),
    "nll_target_out_of_range": (torch.nn.functional.nll_loss, rand(2, 3), torch.tensor([0, 7])),
    "cat_into_its_operand": (lambda a: torch.cat([a[:2], a[:2]], out=a), rand(4, 2)),
    "index_add_of_itself": (lambda a, i: a.index_add_(0, i, a), rand(3), torch.tensor([0, 1, 2])),
    "out_is_a_small_operand": (lambda a, v: a.addr_(v, v), torch.tensor(1.0), rand(3)),
    "not_implemented": (torch.linalg.inv, torch.eye(3, dtype=torch.float16)),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(case: tuple[Any, ...], either_policy: bool) -> None:
    for _ in range(2):
        assert_raises_as_cpu(*case)
    assert torch.ones(3, device="neuron").sum().item() == 3


MIXED = {
    "add": lambda host, device: host + device,
    "add_": lambda host, device: device.add_(host),
    "add_to_host": lambda host, device: host.add_(device),
    "mm": lambda host, device: device @ host,
    "cat": lambda host, device: torch.cat([device, host]),
    "where": lambda host, device: torch.where(host > 0, device, device),
    "linear": lambda host, device: torch.nn.functional.linear(device, host),
    "index_select": lambda host, device: device.index_select(0, torch.tensor([0])),
    "gather": lambda host, device: device.gather(0, torch.zeros(1, 3, dtype=torch.int64)),
    "tril_out": lambda host, device: torch.tril(device, out=host),
    "embedding": lambda host, device: torch.nn.functional.embedding(torch.tensor([0]), device),
    "out": lambda host, device: torch.add(device, device, out=host),
    "foreach": lambda host, device: torch._foreach_add([device], [host]),
    "addmm": lambda host, device: torch.addmm(host, device, device),
    "layer_norm": lambda host, device: torch.nn.functional.layer_norm(device, (3,), host[0]),
    "cross_entropy": lambda host, device: torch.nn.functional.cross_entropy(device, torch.tensor([0, 1, 2])),
    "lerp": lambda host, device: torch.lerp(device, device, host),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_host_and_device_do_not_mix(call: Any) -> None:
    host, device = torch.ones(3, 3), torch.ones(3, 3, device="neuron")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"same device|device") as raised:
            call(host, device)
        assert "neuron" in str(raised.value)
        assert "cpu" in str(raised.value)


def test_host_scalars_and_host_indices_mix() -> None:
    """As on other accelerators: a CPU tensor without dimensions is a scalar, and CPU indices may index."""
    device = torch.arange(6.0, device="neuron").view(2, 3)
    assert (device + torch.tensor(2.0)).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert (torch.tensor(2.0) * device).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert device[torch.tensor([1])].tolist() == [[3, 4, 5]]
    assert device[torch.tensor([True, False])].tolist() == [[0, 1, 2]]
    device[torch.tensor([0])] = torch.tensor(9.0)
    assert device.tolist() == [[9, 9, 9], [3, 4, 5]]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
def test_dtypes(dtype: torch.dtype) -> None:
    a, b = rand(3, 4, dtype=dtype), rand(3, 4, dtype=dtype)
    assert_matches_cpu(lambda x, y: (x + y, x * y, x == y, torch.cat([x, y]), x.t().contiguous(), x[x == y]), a, b)
    assert_matches_cpu(lambda x: (x.sum(), x.any()), a)
    assert_matches_cpu(lambda x: [x.item() for x in x.flatten()[:3]], a)


def test_float8_moves() -> None:
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        host = rand(8).to(dtype)
        device = host.to("neuron")
        assert device.dtype == dtype
        assert torch.equal(device.cpu().view(torch.uint8), host.view(torch.uint8))
        assert torch.equal(device.float().cpu(), host.float())
        assert torch.equal(rand(0).to("neuron").to(dtype).cpu().view(torch.uint8), rand(0).to(dtype).view(torch.uint8))


def test_printing_and_conversion() -> None:
    host = rand(2, 3)
    device = host.to("neuron")
    assert "device='neuron:0'" in repr(device)
    assert f"{device[0, 0]:.3f}" == f"{host[0, 0]:.3f}"
    assert device.tolist() == host.tolist()
    assert (device.cpu().numpy() == host.numpy()).all()
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        device.numpy()
    assert float(device.sum()) == float(host.sum())
    assert list(range(10))[torch.tensor(3, device="neuron")] == 3
    assert len(device) == 2
    assert device.is_neuron
    assert not host.is_neuron
    assert [row.tolist() for row in device] == host.tolist()


def test_quiet_fallbacks_say_why() -> None:
    """What cannot run asynchronously is counted with its reason."""
    _C.reset_op_counts()
    mask = torch.tensor([True, False], device="neuron")
    assert mask.nonzero().tolist() == [[0]]
    reasons = {name: reason for name, reason, _ in _C.drains()}
    assert "aten::nonzero" in reasons
    assert reasons["aten::nonzero"]
    (mask.float() + 1).sum()
    assert torch.ones(2, device="neuron").tolist() == [1, 1]
    assert _C.op_counts()["aten::add.Tensor"] + _C.fallback_counts().get("aten::add.Tensor", 0) >= 1

// SPDX-License-Identifier: Apache-2.0
/* Maps of elements, conversions, and elements that go to another place. */
#include "cuda_check.h"

typedef void
cuda_binary(tsr_cuda_stream, tsr_cuda_type, void *, const void *, const void *, int64_t);
typedef void cpu_binary(float *, const float *, const float *, int64_t, int64_t);

static void check_binary(
    const char *what, tsr_cuda_type type, int64_t n, cuda_binary *kernel, cpu_binary *reference) {
  numbers a = rounded(type, random_numbers(n, 5)), b = rounded(type, random_numbers(n, 2));
  numbers want((size_t)n);
  reference(want.data(), a.data(), b.data(), 0, n);
  auto got = run_all(what, [&](call_arrays &c) {
    void *x = c.in(type, a), *y = c.in(type, b);
    kernel(NULL, type, c.out(type, n), x, y, n);
  });
  check_near(what, type, got[0], want);
  auto in_place = run_all(what, [&](call_arrays &c) {
    void *x = c.changed(type, a), *y = c.in(type, b);
    kernel(NULL, type, x, x, y, n);
  });
  check_same(what, in_place[0], got[0]);
}

static void check_unary(tsr_cuda_type type, int64_t n, tsr_unary kind) {
  numbers x = rounded(type, random_numbers(n, 6)), dy = rounded(type, random_numbers(n, 1));
  x[0] = 0;
  if (n > 8) x[1] = -100, x[2] = 100, x[3] = NAN, x[4] = -12;
  numbers want((size_t)n), want_dx((size_t)n);
  cpu->unary(kind, want.data(), x.data(), 0, n);
  cpu->unary_backward(kind, want_dx.data(), dy.data(), x.data(), 0, n);
  auto got = run_all("unary", [&](call_arrays &c) {
    void *in = c.in(type, x), *d = c.in(type, dy);
    tsr_cuda_unary(NULL, type, kind, c.out(type, n), in, n);
    tsr_cuda_unary_backward(NULL, type, kind, c.out(type, n), d, in, n);
  });
  check_near("unary", type, got[0], rounded(type, want));
  check_near("unary_backward", type, got[1], rounded(type, want_dx));
}

static void check_gated(tsr_cuda_type type, int64_t n, tsr_unary kind) {
  numbers g = rounded(type, random_numbers(n, 6)), u = rounded(type, random_numbers(n, 2));
  g[0] = 0; /* one number in the tail of a function would be its own scale */
  numbers d = rounded(type, random_numbers(n, 1)), want((size_t)n), dg((size_t)n), du((size_t)n);
  cpu->gated(kind, want.data(), g.data(), u.data(), 0, n);
  cpu->gated_backward(kind, dg.data(), du.data(), d.data(), g.data(), u.data(), 0, n);
  auto got = run_all("gated", [&](call_arrays &c) {
    void *gate = c.in(type, g), *up = c.in(type, u), *dout = c.in(type, d);
    void *out = c.out(type, n), *dgate = c.out(type, n), *dup = c.out(type, n);
    tsr_cuda_gated(NULL, type, kind, out, gate, up, n);
    tsr_cuda_gated_backward(NULL, type, kind, dgate, dup, dout, gate, up, n);
  });
  check_near("gated", type, got[0], want);
  check_near("gated_backward", type, got[1], dg);
  check_near("gated_backward", type, got[2], du);
}

/* The CPU's kernels have a test with NaN, infinity and values at the limit; so have these. */
static void check_clamped(tsr_cuda_type type, int64_t n) {
  const float alpha = 1.702f, limit = 3;
  numbers g = rounded(type, random_numbers(n, 6)), u = rounded(type, random_numbers(n, 6));
  if (n > 8) g[0] = limit, g[1] = NAN, g[2] = INFINITY, g[3] = -80, u[4] = limit, u[5] = -limit;
  if (n > 8) u[6] = NAN, u[7] = -INFINITY, u[8] = INFINITY;
  numbers d = rounded(type, random_numbers(n, 1)), want((size_t)n), dg((size_t)n), du((size_t)n);
  cpu->clamped_swiglu(alpha, limit, want.data(), g.data(), u.data(), 0, n);
  cpu->clamped_swiglu_backward(
      alpha, limit, dg.data(), du.data(), d.data(), g.data(), u.data(), 0, n);
  auto got = run_all("clamped_swiglu", [&](call_arrays &c) {
    void *gate = c.in(type, g), *up = c.in(type, u), *dout = c.in(type, d);
    void *out = c.out(type, n), *dgate = c.out(type, n), *dup = c.out(type, n);
    tsr_cuda_clamped_swiglu(NULL, type, alpha, limit, out, gate, up, n);
    tsr_cuda_clamped_swiglu_backward(NULL, type, alpha, limit, dgate, dup, dout, gate, up, n);
  });
  check_near("clamped_swiglu", type, got[0], want);
  check_near("clamped_swiglu_backward", type, got[1], dg);
  check_near("clamped_swiglu_backward", type, got[2], du);
}

static void check_rows(tsr_cuda_type type, int64_t C) {
  int64_t R = 3, n = R * C;
  numbers x = rounded(type, random_numbers(n, 3)), row = rounded(type, random_numbers(C, 2));
  numbers sum((size_t)n), gemm((size_t)n), factor((size_t)n);
  cpu->add_row(sum.data(), x.data(), row.data(), C, 0, R);
  cpu->mul_row(gemm.data(), x.data(), row.data(), C, 0, R);
  cpu->scale(factor.data(), x.data(), 1.5f, 0, n);
  auto got = run_all("rows", [&](call_arrays &c) {
    void *in = c.in(type, x), *r = c.in(type, row);
    tsr_cuda_add_row(NULL, type, c.out(type, n), in, r, R, C);
    tsr_cuda_mul_row(NULL, type, c.out(type, n), in, r, R, C);
    tsr_cuda_scale(NULL, type, c.out(type, n), in, 1.5f, n);
    tsr_cuda_zero(NULL, c.out(n), 4 * n);
  });
  check_near("add_row", type, got[0], sum);
  check_near("mul_row", type, got[1], gemm);
  check_near("scale", type, got[2], factor);
  check_same("zero", got[3], numbers((size_t)n, 0.0f));
}

/* The same bits as one kernel after the other. */
static void check_tail(tsr_cuda_type type, int64_t C) {
  int64_t R = 3, n = R * C;
  numbers x = rounded(type, random_numbers(n, 3)), y = rounded(type, random_numbers(n, 3));
  numbers bias = rounded(type, random_numbers(C, 2));
  auto got = run_all("tail", [&](call_arrays &c) {
    void *in = c.in(type, x), *row = c.in(type, bias), *plus = c.in(type, y);
    void *sum = c.out(type, n), *total = c.out(type, n), *gelu = c.out(type, n);
    tsr_cuda_add_row(NULL, type, sum, in, row, R, C);
    tsr_cuda_add(NULL, type, total, sum, plus, n);
    tsr_cuda_unary(NULL, type, TSR_UNARY_GELU, gelu, sum, n);
    void *sum_too = c.out(type, n), *gelu_too = c.out(type, n);
    tsr_cuda_epilogue(NULL, type, gelu_too, sum_too, in, row, NULL, true, R, C);
    tsr_cuda_epilogue(NULL, type, c.out(type, n), NULL, in, row, plus, false, R, C);
    tsr_cuda_epilogue(NULL, type, c.out(type, n), NULL, sum, NULL, plus, false, R, C);
    tsr_cuda_epilogue(NULL, type, c.out(type, n), NULL, sum, NULL, NULL, true, R, C);
  });
  static const int wants[] = {0, 2, 1, 1, 2}; /* sum, gelu, total, total, gelu */
  for (int i = 0; i < 5; i++) check_same("tail", got[(size_t)i + 3], got[(size_t)wants[i]]);
}

/* Several in one launch, one of several blocks, some of none. */
static void check_casts(tsr_cuda_type from, tsr_cuda_type to) {
  std::vector<numbers> all;
  for (int i = 0; i < TSR_CUDA_CASTS; i++)
    all.push_back(rounded(from, random_numbers(i == 7 ? 20001 : i * 5 % 33, 3)));
  auto got = run_all("casts", [&](call_arrays &c) {
    std::vector<tsr_cuda_cast_pair> pairs;
    for (const numbers &x : all) {
      void *in = c.in(from, x);
      pairs.push_back({c.out(to, (int64_t)x.size()), in, (int64_t)x.size()});
    }
    tsr_cuda_casts(NULL, to, from, pairs.data(), (int)pairs.size());
  });
  CHECK_INT(got.size(), all.size());
  for (size_t i = 0; i < all.size(); i++) check_same("casts", got[i], rounded(to, all[i]));
}

/* The CPU's conversions have all cases of their own tests. */
static void check_cast(tsr_cuda_type from, tsr_cuda_type to, int64_t n) {
  numbers x = random_numbers(n, 1);
  for (float &v : x) { /* all sizes, and those between two numbers */
    uint32_t bits = (uint32_t)check_random() & (check_random() % 2 ? ~0u : 0xFFFFF000u);
    memcpy(&v, &bits, 4);
    int exponent = (int)(check_random() % 44) - 26;
    if (check_random() % 2) v = ldexpf(1 + (float)(check_random() % 4096) / 4096, exponent);
    if (std::isnan(v)) v = INFINITY;
  }
  x[0] = 65519.998f;
  if (n > 4) x[1] = 65520, x[2] = -0.0f, x[3] = 0x1p-25f, x[4] = 0x1.8p-24f;
  x = rounded(from, x);
  auto got = run_all("cast", [&](call_arrays &c) {
    void *in = c.in(from, x);
    tsr_cuda_cast(NULL, to, c.out(to, n), from, in, n);
  });
  check_same("cast", got[0], rounded(to, x));
}

/* A part of a tensor, with its dimensions in another order: to and from an array of its own, and
 * into one that is turned, or has gaps. */
static void check_walk(int bytes, int ndim) {
  int64_t whole[5], shape[5], step[5], offset[5], to[5], size = 1, start = 0, n = 1, room = 1;
  int order[5] = {0, 1, 2, 3, 4};
  for (int d = 0; d < ndim; d++) whole[d] = 1 + (int64_t)(check_random() % 8), size *= whole[d];
  for (int d = ndim - 1; d > 0 && check_random() % 2; d--)
    std::swap(order[d], order[check_random() % (unsigned)(d + 1)]);
  for (int d = 0; d < ndim; d++) {
    int64_t extent = whole[order[d]], stride = 1;
    for (int e = order[d] + 1; e < ndim; e++) stride *= whole[e];
    offset[d] = check_random() % 3 ? 0 : (int64_t)(check_random() % (uint64_t)extent);
    shape[d] = extent - offset[d];
    step[d] = stride, start += offset[d] * stride, n *= shape[d];
  }
  bool transposed = check_random() % 2;
  for (int i = 0; i < ndim; i++) {
    int d = transposed ? i : ndim - 1 - i;
    to[d] = room, room *= shape[d] + (check_random() % 8 ? 0 : 1 + (int64_t)(check_random() % 2));
  }
  numbers x = random_numbers(size * bytes, 1), small = random_numbers(n * bytes, 1);
  auto as_bytes = [&](const numbers &v, int64_t count) {
    std::vector<unsigned char> b((size_t)(count * bytes));
    memcpy(b.data(), v.data(), b.size());
    return b;
  };
  auto from = as_bytes(x, size), part = as_bytes(small, n), gathered = part, scattered = from;
  auto gaps = as_bytes(random_numbers(room * bytes, 1), room), moved = gaps;
  for (int64_t i = 0; i < n; i++) {
    int64_t location = start, rest = i, other = 0;
    for (int d = ndim - 1; d >= 0; rest /= shape[d--])
      location += rest % shape[d] * step[d], other += rest % shape[d] * to[d];
    memcpy(&gathered[(size_t)(i * bytes)], &from[(size_t)(location * bytes)], (size_t)bytes);
    memcpy(&scattered[(size_t)(location * bytes)], &part[(size_t)(i * bytes)], (size_t)bytes);
    memcpy(&moved[(size_t)(other * bytes)], &from[(size_t)(location * bytes)], (size_t)bytes);
  }
  run_all("walk", [&](call_arrays &c) {
    unsigned char *in = c.add(size, (size_t)bytes, from.data())->data;
    unsigned char *source = c.add(n, (size_t)bytes, part.data())->data;
    array *out = c.add(n, (size_t)bytes, NULL), *into = c.add(size, (size_t)bytes, from.data());
    array *onto = c.add(room, (size_t)bytes, gaps.data());
    for (array *a : {out, into, onto}) a->is_output = a->is_scratch = true;
    tsr_cuda_gather(NULL, out->data, in, bytes, ndim, shape, step, start);
    tsr_cuda_scatter(NULL, into->data, source, bytes, ndim, shape, step, start);
    tsr_cuda_move(NULL, onto->data, to, in + start * bytes, step, bytes, ndim, shape);
    finish_work();
    CHECK(!memcmp(out->data, gathered.data(), gathered.size()));
    CHECK(!memcmp(into->data, scattered.data(), scattered.size()));
    CHECK(!memcmp(onto->data, moved.data(), moved.size()));
  });
}

int main(void) {
  for (int64_t n : odd_sizes)
    for (tsr_cuda_type type : types) {
      check_binary("add", type, n, tsr_cuda_add, cpu->add);
      check_binary("sub", type, n, tsr_cuda_sub, cpu->sub);
      check_binary("mul", type, n, tsr_cuda_mul, cpu->mul);
      check_clamped(type, n);
      check_rows(type, n);
      check_tail(type, n);
      for (int i = 0; i < TSR_UNARY_COUNT; i++) {
        tsr_unary kind = (tsr_unary)i;
        if (!tsr_cuda_has_unary(kind)) continue; /* the host's work */
        check_unary(type, n, kind);
        check_gated(type, n, kind);
      }
      for (tsr_cuda_type to : types) check_cast(type, to, n);
    }
  for (tsr_cuda_type type : types) check_casts(TSR_CUDA_F32, type);
  check_casts(TSR_CUDA_BF16, TSR_CUDA_F32);
  for (int i = 0; i < 200; i++)
    for (int bytes = 1; bytes <= 16; bytes *= 2) check_walk(bytes, 1 + i % 5);
  return check_done("cuda.elementwise");
}

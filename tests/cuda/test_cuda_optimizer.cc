// SPDX-License-Identifier: Apache-2.0
/* Optimizers with the CPU's bits, and what is by chance. */
#include "cuda_check.h"

typedef std::vector<uint16_t> halves;

static halves random_halves(int64_t n) {
  halves w((size_t)n);
  cpu->f32_to_bf16(w.data(), random_numbers(n, 1).data(), 0, n);
  return w;
}

static uint16_t *changed(call_arrays &c, const halves &w) {
  array *a = c.add((int64_t)w.size(), 2, w.data());
  a->type = TSR_CUDA_BF16;
  a->is_output = true;
  return (uint16_t *)a->data;
}

static numbers wide(const halves &w) {
  return numbers_get(TSR_CUDA_BF16, w.data(), (int64_t)w.size());
}

/* One update's inputs; its state after earlier ones. */
struct update {
  int64_t n;
  numbers w, grad, m, v, v_max;
  halves narrow, lost;
  numbers clip;
};

static update update_new(int64_t n, bool skips) {
  update u = {
      n,
      random_numbers(n, 1),
      random_numbers(n, 2),
      random_numbers(n, 1),
      {},
      {},
      random_halves(n),
      random_halves(n),
      {}};
  u.v = u.v_max = random_numbers(n, 1);
  for (float &v : u.v) v *= v;
  for (float &v : u.v_max) v = (float)(check_random() % 100) / 100;
  for (uint16_t &c : u.lost) c = (uint16_t)(c - (8 << 7)); /* far smaller than the weights */
  u.clip = {2, 0.5f, skips ? 0.0f : 1.0f};
  return u;
}

static const float lr = 0.02f, correction1 = 0.3f, correction2 = 0.05f;
static const float decays[] = {0.1f, 0, 0.02f};

/* Updates of one launch. */
static std::vector<update> updates_new(const std::vector<int64_t> &sizes, bool skips) {
  std::vector<update> all;
  for (int64_t n : sizes) all.push_back(update_new(n, skips));
  return all;
}

static tsr_cuda_adamw_options adamw_options(call_arrays &c, const update &u, bool coupled) {
  float *rate = c.one(lr), *one = c.one(correction1), *two = c.one(correction2);
  return {0.9f, 0.95f, 1e-8f, coupled, rate, one, two, c.in(u.clip)};
}

static void check_adamw(const std::vector<int64_t> &sizes, bool max, bool skips, bool coupled) {
  std::vector<update> all = updates_new(sizes, skips), want = all;
  for (size_t i = 0; i < all.size() && !skips; i++) {
    tsr_adamw o = {lr, 0.9f, 0.95f, 1e-8f, decays[i % 3], correction1, correction2, max, coupled};
    cpu->adamw(
        &o, want[i].w.data(), want[i].m.data(), want[i].v.data(), max ? want[i].v_max.data() : NULL,
        all[i].grad.data(), 0.5f, 0, all[i].n);
  }
  auto got = run_all("adamw", [&](call_arrays &c) {
    tsr_cuda_adamw_options options = adamw_options(c, all[0], coupled);
    std::vector<tsr_cuda_weight> weights;
    for (const update &u : all) {
      float *w = c.changed(u.w), *m = c.changed(u.m), *v = c.changed(u.v), *last = NULL;
      if (max) last = c.changed(u.v_max);
      weights.push_back({w, m, v, last, c.in(u.grad), u.n, decays[weights.size() % 3]});
    }
    tsr_cuda_adamw(NULL, &options, weights.data(), NULL, (int)weights.size());
  });
  size_t at = 0;
  for (const update &u : want) {
    check_same("adamw", got[at++], u.w);
    check_same("adamw m", got[at++], u.m);
    check_same("adamw v", got[at++], u.v);
    if (max) check_same("adamw v_max", got[at++], u.v_max);
  }
  CHECK_INT(at, got.size());
}

static void
check_sgd(const std::vector<int64_t> &sizes, float momentum, bool nesterov, bool first) {
  std::vector<update> all = updates_new(sizes, false), want = all;
  float dampening = nesterov ? 0 : 0.1f;
  for (size_t i = 0; i < all.size(); i++) {
    tsr_sgd o = {lr, momentum, dampening, decays[i % 3], nesterov, first};
    float *buffer = momentum == 0 ? NULL : want[i].m.data();
    cpu->sgd(&o, want[i].w.data(), buffer, all[i].grad.data(), 1, 0, all[i].n);
  }
  auto got = run_all("sgd", [&](call_arrays &c) {
    float *rate = c.one(lr), *begins = c.one(first ? 1.0f : 0.0f);
    tsr_cuda_sgd_options options = {momentum, dampening, nesterov, rate, begins, NULL};
    std::vector<tsr_cuda_weight> weights;
    for (const update &u : all) {
      float *w = c.changed(u.w), *m = momentum == 0 ? NULL : c.changed(u.m);
      weights.push_back({w, m, NULL, NULL, c.in(u.grad), u.n, decays[weights.size() % 3]});
    }
    tsr_cuda_sgd(NULL, &options, weights.data(), NULL, (int)weights.size());
  });
  size_t at = 0;
  for (const update &u : want) {
    check_same("sgd", got[at++], u.w);
    if (momentum != 0) check_same("sgd momentum", got[at++], u.m);
  }
  CHECK_INT(at, got.size());
}

/* Weights in bf16: slices within larger tensors, of these rows. */
static void
check_bf16(const std::vector<int64_t> &rows, int64_t cols, tsr_rounding_kind kind, bool adamw) {
  std::vector<update> all, want;
  std::vector<tsr_tensor_slice> slices;
  const uint64_t key = tsr_random_key(1, "w", 7);
  const bool coupled = kind == TSR_ROUND_STOCHASTIC;
  for (int64_t r : rows) {
    slices.push_back({3, {r, cols, 1}, {r + 3, cols + (cols % 2) * 5, 1}, {2, 0, 0}});
    all.push_back(update_new(r * cols, false));
  }
  want = all;
  for (size_t i = 0; i < all.size(); i++) {
    update &u = want[i];
    tsr_rounding reference = {kind, key + i, &slices[i], u.lost.data()};
    tsr_adamw a = {lr, 0.9f, 0.95f, 1e-8f, decays[i % 3], correction1, correction2, true, coupled};
    tsr_sgd s = {lr, 0.9f, 0.1f, decays[i % 3], true, false};
    if (adamw)
      cpu->adamw_bf16(
          &a, &reference, u.narrow.data(), u.m.data(), u.v.data(), u.v_max.data(), u.grad.data(),
          0.5f, 0, u.n);
    else cpu->sgd_bf16(&s, &reference, u.narrow.data(), u.m.data(), u.grad.data(), 0.5f, 0, u.n);
  }
  auto got = run_all("bf16", [&](call_arrays &c) {
    tsr_cuda_adamw_options a = adamw_options(c, all[0], coupled);
    tsr_cuda_sgd_options s = {0.9f, 0.1f, true, a.lr, c.one(0), a.clip};
    std::vector<tsr_cuda_weight> weights;
    std::vector<tsr_cuda_rounding> roundings;
    for (const update &u : all) {
      size_t i = weights.size();
      uint16_t *w = changed(c, u.narrow), *lost = changed(c, u.lost);
      float *m = c.changed(u.m), *v = c.changed(u.v), *v_max = c.changed(u.v_max);
      weights.push_back({w, m, v, v_max, c.in(u.grad), u.n, decays[i % 3]});
      roundings.push_back({kind, c.key(key + i), slices[i], lost});
    }
    int count = (int)weights.size();
    if (adamw) tsr_cuda_adamw(NULL, &a, weights.data(), roundings.data(), count);
    else tsr_cuda_sgd(NULL, &s, weights.data(), roundings.data(), count);
  });
  for (size_t i = 0; i < all.size(); i++) {
    check_same("bf16 weights", got[i * 5], wide(want[i].narrow));
    check_same("bf16 compensation", got[i * 5 + 1], wide(want[i].lost));
    check_same("bf16 m", got[i * 5 + 2], want[i].m);
    check_same("bf16 v", got[i * 5 + 3], want[i].v);
    check_same("bf16 v_max", got[i * 5 + 4], want[i].v_max);
  }
}

/* f32 and the narrower types; slices that are whole, split along the last dimension, or the first. */
static void check_dropout(tsr_cuda_type type, const tsr_tensor_slice &slice, float p) {
  int64_t n = 1, rows;
  for (int d = 0; d < slice.ndim; d++) n *= slice.shape[d];
  rows = n / slice.shape[slice.ndim - 1];
  numbers x = rounded(type, random_numbers(n, 2)), want((size_t)n);
  const uint64_t key = tsr_random_key(3, "dropout", 1);
  cpu->dropout(want.data(), x.data(), p, key, &slice, 0, rows);
  auto got = run_all("dropout", [&](call_arrays &c) {
    void *in = c.in(type, x);
    tsr_cuda_dropout(NULL, type, c.out(type, n), in, p, c.key(key), &slice);
  });
  check_same("dropout", got[0], rounded(type, want));
}

static void test_optimizers(const std::vector<int64_t> &sizes) {
  check_adamw(sizes, false, false, false);
  check_adamw(sizes, true, false, false);
  check_adamw(sizes, true, true, false);
  check_adamw(sizes, false, false, true);
  check_adamw(sizes, true, false, true);
  check_sgd(sizes, 0, false, false);
  check_sgd(sizes, 0.9f, false, true);
  check_sgd(sizes, 0.9f, false, false);
  check_sgd(sizes, 0.9f, true, false);
}

/* More weights than a launch takes, one of several blocks. */
static void test_many_weights(void) {
  std::vector<int64_t> sizes, rows;
  for (int64_t i = 0; i < 100; i++) sizes.push_back(i == 30 ? 20001 : 1 + i * 7 % 40);
  for (int64_t i = 0; i < 35; i++) rows.push_back(i == 20 ? 700 : 1 + i % 3);
  check_adamw(sizes, false, false, false);
  check_sgd(sizes, 0.9f, false, false);
  for (int kind = TSR_ROUND_NEAREST; kind <= TSR_ROUND_KAHAN; kind++)
    check_bf16(rows, 13, (tsr_rounding_kind)kind, kind != TSR_ROUND_NEAREST);
}

static void test_dropout(tsr_cuda_type type) {
  check_dropout(type, {1, {1}, {1}, {0}}, 0.5f);
  check_dropout(type, {1, {1000}, {5000}, {1003}}, 0.1f);
  check_dropout(type, {2, {7, 33}, {9, 33}, {2, 0}}, 0.1f);
  check_dropout(type, {2, {7, 33}, {9, 70}, {2, 37}}, 0.3f);
  check_dropout(type, {3, {3, 5, 64}, {6, 10, 64}, {3, 5, 0}}, 0.5f);
  check_dropout(type, {5, {2, 3, 2, 3, 1}, {4, 3, 4, 3, 7}, {1, 0, 2, 0, 5}}, 0.5f);
  check_dropout(type, {2, {2, 9}, {1ll << 40, 1 << 20}, {(1ll << 40) - 5, 13}}, 0.5f);
}

int main(void) {
  for (int64_t n : odd_sizes) {
    test_optimizers({n});
    for (int kind = TSR_ROUND_NEAREST; kind <= TSR_ROUND_KAHAN; kind++) {
      check_bf16({1}, n, (tsr_rounding_kind)kind, true);
      check_bf16({3}, n, (tsr_rounding_kind)kind, false);
    }
  }
  test_optimizers({0, 257, 1, 8192, 8193, 0, 64});
  test_many_weights();
  for (tsr_cuda_type type : types) test_dropout(type);
  return check_done("cuda.optimizer");
}

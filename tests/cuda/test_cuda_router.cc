// SPDX-License-Identifier: Apache-2.0
/* Routing of a mixture of experts and the plan of rows on a GPU. Whole numbers, and floats that no
 * exp or log enters, are those of the CPU's kernels, which tests/kernels compares with definitions;
 * the others are near them. */
#include "expert_case.h"

/* ---- choice ---- */

typedef struct {
  tsr_choice r;
  bool bias;
  int special; /* 0: none, 1: ties and infinities, 2: NaNs */
} choice_case;

static numbers scores_of(int64_t S, int64_t E, int special) {
  numbers x = random_numbers(S * E, 1);
  for (size_t i = 0; special == 1 && i < x.size(); i++) {
    x[i] = (float)((int)(check_random() % 5) - 2);
    if (check_random() % 7 == 0) x[i] = i % 2 ? -INFINITY : -0.0f;
  }
  for (size_t i = 5; special == 2 && i < x.size(); i += 17) x[i] = NAN;
  return x;
}

static void check_choice(const choice_case &of, int64_t S) {
  const tsr_choice &r = of.r;
  numbers scores = scores_of(S, r.E, of.special), bias = random_numbers(r.E, 0.2f);
  integers want((size_t)(S * r.k));
  int64_t nan =
      cpu->choose_experts(&r, want.data(), scores.data(), of.bias ? bias.data() : NULL, 0, S);
  auto got = run_all("choose_experts", [&](call_arrays &c) {
    uint64_t nowhere = UINT64_MAX;
    array *place = c.add(1, 8, &nowhere);
    place->is_output = place->is_scratch = true;
    float *in = c.in(scores), *shift = of.bias ? c.in(bias) : NULL;
    int32_t *out = out_integers(c, S * r.k);
    void *keys = c.scratch(tsr_cuda_choose_experts_scratch(S, r.groups));
    tsr_cuda_choose_experts(NULL, &r, out, in, shift, S, 77, (uint64_t *)(void *)place->data, keys);
    finish_work();
    uint64_t found;
    memcpy(&found, place->data, 8);
    CHECK_INT(found == 77, nan > 0);
    CHECK_INT(found == nowhere, nan == 0);
  });
  check_integers("choose_experts", as_integers(got[0]), want);
}

static void test_choice() {
  static const choice_case cases[] = {
      {{1, 1, 1, 1, 1}, false, 0},   {{8, 2, 1, 1, 1}, false, 0},   {{8, 2, 1, 1, 1}, true, 1},
      {{40, 37, 1, 1, 1}, true, 1},  {{64, 6, 8, 3, 2}, true, 0},   {{64, 6, 8, 3, 2}, true, 1},
      {{256, 8, 8, 4, 2}, false, 0}, {{33, 5, 11, 5, 3}, false, 1}, {{33, 3, 1, 1, 1}, true, 2},
      {{80, 4, 40, 9, 1}, true, 2},  {{130, 7, 1, 1, 1}, false, 2}, {{12, 4, 3, 3, 4}, false, 1}};
  for (const choice_case &of : cases)
    for (int64_t S : {1, 9}) check_choice(of, S);
  /* Many choices, and many groups. */
  check_choice({{3000, 1500, 1, 1, 1}, true, 1}, 2);
  check_choice({{2200, 90, 1100, 80, 2}, true, 1}, 5);
  check_choice({{1025, 7, 1025, 9, 1}, false, 2}, 2);
}

/* ---- weights ---- */

static void check_weights(int64_t S, const tsr_choice_weights &w) {
  integers experts = random_choices(S, w.E, w.k);
  numbers scores = random_numbers(S * w.E, 1), dweights = random_numbers(S * w.k, 1);
  for (float &x : scores) x = fabsf(x);
  numbers want((size_t)(S * w.k)), slope((size_t)(S * w.E));
  cpu->expert_weights(&w, want.data(), scores.data(), experts.data(), 0, S);
  cpu->expert_weights_backward(
      &w, slope.data(), dweights.data(), scores.data(), experts.data(), 0, S);
  auto got = run_all("expert_weights", [&](call_arrays &c) {
    float *x = c.in(scores), *d = c.in(dweights);
    int32_t *chosen = c.in(experts);
    tsr_cuda_expert_weights(NULL, &w, c.out(S * w.k), x, chosen, S);
    tsr_cuda_expert_weights_backward(NULL, &w, c.out(S * w.E), d, x, chosen, S);
  });
  if (w.softmax) {
    check_near("expert_weights", TSR_CUDA_F32, got[0], want);
    check_near("expert_weights_backward", TSR_CUDA_F32, got[1], slope);
    return;
  }
  check_same("expert_weights", got[0], want);
  check_same("expert_weights_backward", got[1], slope);
}

static void test_weights() {
  for (int how = 0; how < 4; how++) {
    bool softmax = how & 1, normalizes = how & 2;
    check_weights(1, {1, 1, softmax, normalizes, 1});
    check_weights(300, {16, 4, softmax, normalizes, 2.5f});
    check_weights(7, {5, 5, softmax, normalizes, 1});
  }
}

/* ---- counts, balance, updates ---- */

enum { DIGIT = 4096 };

static void check_balance(int64_t samples, int64_t each, int64_t E, int64_t k, bool normalizes) {
  int64_t S = samples * each;
  integers experts = random_choices(S, E, k);
  numbers counts((size_t)(samples * E)), scores = random_numbers(S * E, 1), want((size_t)(S * E));
  for (float &x : scores) x = fabsf(x) + 0.01f;
  cpu->expert_counts(counts.data(), experts.data(), each, k, E, 0, samples);
  cpu->balance_backward(
      want.data(), counts.data(), scores.data(), each, E, 0.25f * 3, normalizes, 0, S);
  numbers z((size_t)(S * E));
  cpu->router_z_backward(z.data(), scores.data(), E, 0.5f * 3, 0, S);
  auto got = run_all("balance", [&](call_arrays &c) {
    tsr_cuda_expert_counting of = {samples, E, each * k, 1, 0};
    tsr_cuda_balance b = {each, 0, 0.25f, c.one(3), normalizes};
    float *by_sample = c.out(samples * E), *x = c.in(scores);
    tsr_cuda_expert_counts(NULL, by_sample, c.in(experts), &of);
    tsr_cuda_balance_backward(NULL, c.out(S * E), by_sample, x, S, E, &b);
    tsr_cuda_router_z_backward(NULL, c.out(S * E), x, S, E, 0.5f, b.more);
  });
  check_same("expert_counts", got[0], counts);
  check_same("balance_backward", got[1], want);
  check_near("router_z_backward", TSR_CUDA_F32, got[2], z);
}

/* All tokens' counts as whole numbers. */
static numbers totals_of(const integers &experts, int64_t E) {
  numbers totals((size_t)E);
  for (int32_t e : experts)
    if (e >= 0) totals[(size_t)e]++;
  return totals;
}

static void check_updates(int64_t S, int64_t E, int64_t k, bool centre) {
  integers experts = random_choices(S, E, k);
  numbers totals = totals_of(experts, E), bias = random_numbers(E, 1), want = bias, wrong = bias;
  numbers scores((size_t)(S * E), 0.5f), by_digits((size_t)(S * E));
  double mean = (double)(S * k) / (double)E, signs = 0;
  auto sign = [&](int64_t e) { return (totals[(size_t)e] < mean) - (totals[(size_t)e] > mean); };
  for (int64_t e = 0; e < E; e++) signs += sign(e);
  for (int64_t e = 0; e < E; e++)
    want[(size_t)e] += (float)(0.001 * (sign(e) - (centre ? signs / (double)E : 0)));
  cpu->balance_backward(by_digits.data(), totals.data(), scores.data(), S, E, 2, true, 0, S);
  auto got = run_all("updates", [&](call_arrays &c) {
    tsr_cuda_expert_counting of = {1, E, S * k, 1, DIGIT};
    tsr_cuda_balance b = {S, DIGIT, 2, NULL, true};
    float *counts = c.out(2 * E), *made = c.in(numbers{1, 1, 1}), *stopped = c.in(numbers{1, 1, 0});
    tsr_cuda_expert_counts(NULL, counts, c.in(experts), &of);
    tsr_cuda_expert_bias(NULL, c.changed(bias), counts, E, DIGIT, 0.001, centre, made);
    tsr_cuda_expert_bias(NULL, c.changed(wrong), counts, E, DIGIT, 0.001, centre, stopped);
    tsr_cuda_expert_load(NULL, c.out(E), counts, E, DIGIT, NULL);
    tsr_cuda_balance_backward(NULL, c.out(S * E), counts, c.in(scores), S, E, &b);
  });
  check_same("expert_bias", got[1], want);
  check_same("a bias that is not updated", got[2], wrong);
  check_same("expert_load", got[3], totals);
  check_same("balance_backward of digits", got[4], by_digits);
}

static void test_balance() {
  check_balance(1, 1, 1, 1, true);
  check_balance(3, 50, 9, 2, true);
  check_balance(2, 40, 64, 6, false);
  check_updates(5000, 3, 2, true); /* more than a digit */
  check_updates(40, 300, 4, false);
}

/* ---- plans ---- */

static void
check_plan(int64_t S, const tsr_experts &e, const tsr_capacity &capacity, bool prioritised) {
  integers experts = random_choices(S, e.E, e.k);
  numbers priority = random_numbers(S * e.k, 1);
  for (size_t i = 0; i < priority.size(); i += 3) priority[i] = i % 2 ? NAN : 0.25f;
  int64_t R = room_for(e, S), rows;
  integers want = cpu_plan(e, capacity, experts, prioritised ? priority.data() : NULL, S, R, &rows);
  auto got = run_all("expert_plan", [&](call_arrays &c) {
    void *scratch = c.scratch(tsr_cuda_expert_plan_scratch(e.count, S, e.k, &capacity));
    tsr_cuda_expert_plan(
        NULL, &e, &capacity, out_integers(c, 2 * R), c.in(experts),
        prioritised ? c.in(priority) : NULL, S, R, scratch);
  });
  check_integers("expert_plan", as_integers(got[0]), want);
  integers of_row;
  for (int64_t r = 0; r < R; r++) of_row.push_back(want[(size_t)(2 * r + 1)]);
  numbers totals = totals_of(of_row, e.E);
  auto counts = run_all("expert_counts", [&](call_arrays &c) {
    tsr_cuda_expert_counting of = {1, e.E, R, 2, DIGIT};
    tsr_cuda_expert_counts(NULL, c.out(2 * e.E), c.in(want) + 1, &of);
  });
  check_same("counts of a plan", part(counts[0], 0, e.E), totals);
}

static void test_plans() {
  check_plan(1, {1, 1, 0, 1}, {0, 0}, false);
  check_plan(300, {8, 2, 0, 8}, {0, 0}, false);
  check_plan(300, {8, 2, 4, 2}, {0, 0}, false);
  check_plan(40, {2048, 3, 1024, 1024}, {0, 0}, false);
  check_plan(96, {8, 3, 6, 2}, {0, 0}, false);
  for (int prioritised = 0; prioritised < 2; prioritised++) {
    check_plan(96, {8, 2, 0, 8}, {3, 24}, prioritised);
    check_plan(300, {6, 3, 3, 3}, {40, 100}, prioritised);
    check_plan(64, {4, 1, 1, 1}, {1, 16}, prioritised);
    check_plan(64, {16, 5, 0, 16}, {64, 64}, prioritised); /* nothing is dropped */
  }
}

int main() {
  test_choice();
  test_weights();
  test_balance();
  test_plans();
  return check_done("cuda.router");
}

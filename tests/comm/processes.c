// SPDX-License-Identifier: Apache-2.0
#include "processes.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_S = 200, GUARD = 0x5a };

/* tests/check.h counts for one thread; here many check at once. */
typedef struct {
  const tsr_transport *t;
  int failed;
} witness;

#define EXPECT(w, ok, ...)                                                                         \
  do {                                                                                             \
    if (!(ok)) {                                                                                   \
      (w)->failed++;                                                                               \
      fprintf(stderr, "%s:%d: process %d: ", __FILE__, __LINE__, (w)->t->process);                 \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fputc('\n', stderr);                                                                         \
    }                                                                                              \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void give_up(const char *what, int process) {
  fprintf(stderr, "process %d gives up: %s\n", process, what);
  _Exit(1);
}

static bool finish(const witness *w, tsr_message *m, const char *what, char *why) {
  for (double begin = now();; sched_yield()) {
    tsr_message_state state = w->t->table->test(w->t->state, m, why);
    if (state != TSR_MESSAGE_PENDING) return state == TSR_MESSAGE_DONE;
    if (now() - begin > TIMEOUT_S) give_up(what, w->t->process);
  }
}

static tsr_message send_to(witness *w, int to, int tag, const void *from, int64_t bytes) {
  char why[TSR_WHY_BYTES] = "";
  tsr_message m = {0};
  if (!w->t->table->send(w->t->state, to, tag, from, bytes, &m, why)) give_up(why, w->t->process);
  return m;
}

static tsr_message receive_from(witness *w, int from, int tag, void *to, int64_t bytes) {
  char why[TSR_WHY_BYTES] = "";
  tsr_message m = {0};
  if (!w->t->table->receive(w->t->state, from, tag, to, bytes, &m, why))
    give_up(why, w->t->process);
  return m;
}

static void expect_done(witness *w, tsr_message *m, const char *what) {
  char why[TSR_WHY_BYTES] = "";
  bool ok = finish(w, m, what, why);
  EXPECT(w, ok, "%s failed: %s", what, why);
}

/* Everybody has come here. */
static void meet(witness *w) {
  int n = w->t->processes;
  tsr_message messages[2 * 64];
  int count = 0;
  for (int p = 0; p < n; p++) {
    messages[count++] = receive_from(w, p, 999, NULL, 0);
    messages[count++] = send_to(w, p, 999, NULL, 0);
  }
  for (int i = 0; i < count; i++) expect_done(w, &messages[i], "a meeting");
}

static void fill(unsigned char *bytes, int64_t count, uint64_t seed) {
  uint64_t state = seed, word = 0;
  for (int64_t i = 0; i < count; i++) {
    if (i % 8 == 0) word = draw(&state);
    bytes[i] = (unsigned char)(word >> (i % 8 * 8));
  }
}

static int64_t count_wrong(const unsigned char *bytes, int64_t count, uint64_t seed) {
  uint64_t state = seed, word = 0;
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; i++) {
    if (i % 8 == 0) word = draw(&state);
    wrong += bytes[i] != (unsigned char)(word >> (i % 8 * 8));
  }
  return wrong;
}

/* From each process to the next one, also to itself where it is alone; the receive or the send
 * first. */
static void check_ring(witness *w, int64_t bytes, int tag, bool send_first) {
  int n = w->t->processes, own = w->t->process, next = (own + 1) % n, last = (own + n - 1) % n;
  unsigned char *from = malloc((size_t)bytes + 1), *to = malloc((size_t)bytes + 1);
  fill(from, bytes, (uint64_t)(own * 1000 + tag));
  memset(to, GUARD, (size_t)bytes + 1);
  tsr_message in, out;
  if (send_first) out = send_to(w, next, tag, from, bytes);
  in = receive_from(w, last, tag, to, bytes);
  if (!send_first) out = send_to(w, next, tag, from, bytes);
  expect_done(w, &in, "a receive of the ring");
  expect_done(w, &out, "a send of the ring");
  int64_t wrong = count_wrong(to, bytes, (uint64_t)(last * 1000 + tag));
  EXPECT(w, !wrong, "%lld of %lld bytes are wrong", (long long)wrong, (long long)bytes);
  EXPECT(w, to[bytes] == GUARD, "a byte too many came with %lld", (long long)bytes);
  free(from);
  free(to);
}

static void check_sizes(witness *w) {
  static const int64_t sizes[] = {
      0,     1,     2,     3,     7,     63,     64,     65,           1000,
      4095,  4096,  4097,  8191,  12289, 32767,  32768,  32769,        65535,
      65536, 65537, 66000, 70001, 99999, 131072, 262145, (1 << 20) + 1};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    check_ring(w, sizes[i], i, false);
    check_ring(w, sizes[i], TSR_TRANSPORT_TAGS - 1 - i, true);
  }
#ifndef __SANITIZE_THREAD__ /* which takes minutes for so many bytes */
  check_ring(w, (1 << 24) - 1, 1, false);
  check_ring(w, 1 << 24, 2, false);
  check_ring(w, (1 << 24) + 1, 3, true);
  check_ring(w, 64 << 20, 4, false);
  check_ring(w, (64 << 20) + 3, 5, false);
#endif
}

/* A process's messages to itself. */
static void check_self(witness *w) {
  int from[3] = {1, 2, 3}, to[3] = {0};
  tsr_message out[3], in[3];
  for (int i = 0; i < 3; i++) out[i] = send_to(w, w->t->process, i, &from[i], sizeof(int));
  for (int i = 2; i >= 0; i--) in[i] = receive_from(w, w->t->process, i, &to[i], sizeof(int));
  for (int i = 0; i < 3; i++) expect_done(w, &in[i], "a receive from itself");
  for (int i = 0; i < 3; i++) expect_done(w, &out[i], "a send to itself");
  EXPECT(w, !memcmp(from, to, sizeof to), "%d %d %d came", to[0], to[1], to[2]);
}

/* One tag: in order, however many are under way. */
static void check_order(witness *w) {
  enum { COUNT = 300 };
  int n = w->t->processes, next = (w->t->process + 1) % n, last = (w->t->process + n - 1) % n;
  static const int64_t longs[2] = {2, 9000}; /* some by another protocol of MPI's */
  int64_t *from = calloc(COUNT * 9000, 8), *to = calloc(COUNT * 9000, 8);
  tsr_message in[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; i++) {
    int64_t length = longs[i % 5 == 0];
    from[i * 9000] = i;
    from[i * 9000 + length - 1] = -i;
    out[i] = send_to(w, next, 77, from + i * 9000, length * 8);
  }
  for (int i = 0; i < COUNT; i++)
    in[i] = receive_from(w, last, 77, to + i * 9000, longs[i % 5 == 0] * 8);
  for (int i = COUNT - 1; i >= 0; i--) expect_done(w, &in[i], "one of many in order");
  for (int i = 0; i < COUNT; i++) expect_done(w, &out[i], "a send of many in order");
  EXPECT(w, !memcmp(from, to, COUNT * 9000 * 8), "they came in another order");
  free(from);
  free(to);
}

enum { TAGS = 7, EACH = 40, BYTES_MAX = 9000 };

static int64_t size_of(int from, int to, int tag, int i) {
  uint64_t state = (uint64_t)(((from * 100 + to) * 100 + tag) * 1000 + i);
  uint64_t r = draw(&state);
  return (int64_t)(r % 5 == 0 ? r / 5 % BYTES_MAX : r / 5 % 200);
}

static uint64_t seed_of(int from, int to, int tag, int i) {
  return 1 + (uint64_t)(((from * 100 + to) * 100 + tag) * 1000 + i);
}

/* Of every pair, in both directions, many messages of many tags, begun and asked for in an order of
 * chance; only those of one tag are begun in order. */
static void check_many(witness *w) {
  int n = w->t->processes, own = w->t->process, total = 2 * n * TAGS * EACH;
  tsr_message *messages = calloc((size_t)total, sizeof *messages);
  bool *open = calloc((size_t)total, sizeof *open);
  unsigned char *bytes = malloc((size_t)total * (BYTES_MAX + 1));
  int *begun = calloc((size_t)(2 * n * TAGS), sizeof *begun);
  uint64_t chance = 4711 + (uint64_t)own;
  char why[TSR_WHY_BYTES] = "";
  int left = total, unbegun = total;
  for (double begin = now(); left;) {
    int lane = (int)(draw(&chance) % (uint64_t)(2 * n * TAGS));
    int peer = lane / 2 / TAGS, tag = lane / 2 % TAGS, i = begun[lane];
    if (unbegun && i < EACH) {
      int slot = lane * EACH + i, from = lane % 2 ? own : peer, to = lane % 2 ? peer : own;
      unsigned char *at = bytes + (size_t)slot * (BYTES_MAX + 1);
      int64_t size = size_of(from, to, tag, i);
      if (lane % 2) fill(at, size, seed_of(from, to, tag, i));
      messages[slot] = lane % 2 ? send_to(w, to, 100 + tag, at, size)
                                : receive_from(w, from, 100 + tag, at, size);
      open[slot] = true;
      begun[lane]++;
      unbegun--;
    }
    for (int tries = 0; tries < (unbegun ? 2 : 50); tries++) {
      int slot = (int)(draw(&chance) % (uint64_t)total);
      while (!unbegun && left && !open[slot]) slot = (slot + 1) % total;
      if (!open[slot]) continue;
      tsr_message_state state = w->t->table->test(w->t->state, &messages[slot], why);
      if (state == TSR_MESSAGE_PENDING) continue;
      EXPECT(w, state == TSR_MESSAGE_DONE, "one of many failed: %s", why);
      open[slot] = false;
      if (!--left) break;
    }
    if (!unbegun) sched_yield();
    if (now() - begin > TIMEOUT_S) give_up("one of many", own);
  }
  for (int lane = 0; lane < 2 * n * TAGS; lane += 2)
    for (int i = 0; i < EACH; i++) {
      int from = lane / 2 / TAGS, tag = lane / 2 % TAGS;
      const unsigned char *at = bytes + (size_t)(lane * EACH + i) * (BYTES_MAX + 1);
      int64_t wrong = count_wrong(at, size_of(from, own, tag, i), seed_of(from, own, tag, i));
      EXPECT(w, !wrong, "message %d of tag %d from %d: %lld wrong", i, tag, from, (long long)wrong);
    }
  free(messages);
  free(open);
  free(bytes);
  free(begun);
}

/* A receive of another count than was sent fails by name, and the next message is none the worse.
 */
static void check_count(witness *w, int64_t sent, int64_t asked) {
  int n = w->t->processes, next = (w->t->process + 1) % n, last = (w->t->process + n - 1) % n;
  enum { TAG = 4242 };
  int64_t most = sent > asked ? sent : asked;
  char *from = calloc((size_t)most + 1, 1), *to = calloc((size_t)most + 1, 1), want[160];
  char why[TSR_WHY_BYTES] = "";
  tsr_message in = receive_from(w, last, TAG, to, asked);
  tsr_message out = send_to(w, next, TAG, from, sent);
  bool ok = finish(w, &in, "a receive of another count", why);
  if (sent > asked)
    snprintf(
        want, sizeof want, "process %d sent more than the %lld bytes that were asked for (tag %d)",
        last, (long long)asked, TAG);
  else
    snprintf(
        want, sizeof want, "process %d sent %lld of the %lld bytes that were asked for (tag %d)",
        last, (long long)sent, (long long)asked, TAG);
  EXPECT(w, !ok, "%lld bytes came where %lld were asked", (long long)sent, (long long)asked);
  EXPECT(w, !strcmp(why, want), "it says\n%s\nnot\n%s", why, want);
  finish(w, &out, "a send of another count", why);
  free(from);
  free(to);
  meet(w);
  check_ring(w, 100, TAG, false);
}

static void check_counts(witness *w) {
  static const int64_t pairs[][2] = {
      {9, 8},
      {8, 9},
      {0, 5},
      {5, 0},
      {4096, 8},
      {8, 4096},
      {1 << 20, 1000},
      {1000, 1 << 20},
      {1 << 25, 16},
      {16, 1 << 25},
      {1 << 25, (1 << 25) - 1},
      {(1 << 25) - 1, 1 << 25}};
  for (int i = 0; i < (int)(sizeof pairs / sizeof *pairs); i++)
    check_count(w, pairs[i][0], pairs[i][1]);
}

static void check_sums(witness *w) {
  static const int64_t counts[] = {0, 1, 3, 4096, 4097, 100003};
  int n = w->t->processes;
  for (int c = 0; c < (int)(sizeof counts / sizeof *counts); c++) {
    float *numbers = malloc(sizeof(float) * (size_t)(counts[c] + 1));
    for (int64_t i = 0; i < counts[c]; i++)
      numbers[i] = (float)((i % 1000 + 1) * (w->t->process + 1));
    char why[TSR_WHY_BYTES] = "";
    bool ok = w->t->table->all_reduce(w->t->state, numbers, counts[c], why);
    EXPECT(w, ok, "all_reduce: %s", why);
    int64_t wrong = 0;
    for (int64_t i = 0; i < counts[c]; i++)
      wrong += numbers[i] != (float)((i % 1000 + 1) * (n * (n + 1) / 2));
    EXPECT(w, !wrong, "%lld of %lld sums are wrong", (long long)wrong, (long long)counts[c]);
    free(numbers);
  }
}

/* ---- sums of groups ---- */

/* What a process brings to a sum, at an element; small, so that any order gives the same. */
static float term_of(int process, int which, int64_t i) {
  return (float)((i * 7 + which * 3) % 100 * (process + 1));
}

static int64_t count_wrong_sums(
    const float *got, const int *processes, int count, int which, int64_t begin, int64_t end) {
  int64_t wrong = 0;
  for (int64_t i = begin; i < end; i++) {
    float want = 0;
    for (int w = 0; w < count; w++) want += term_of(processes[w], which, i);
    wrong += got[i - begin] != want;
  }
  return wrong;
}

/* Three sums under way at once, one of them in place, and one of slices, of which some are empty.
 */
static void check_group(witness *w, void *group, const int *processes, int count) {
  enum { SUMS = 3 };
  static const int64_t counts[SUMS] = {1, 4097, 100003};
  float *in[SUMS + 1], *out[SUMS + 1];
  tsr_message messages[SUMS + 1];
  char why[TSR_WHY_BYTES] = "";
  int slices[64], own = 0, begin = 0;
  int64_t all = 0;
  for (int i = 0; i < count; i++) {
    own = processes[i] == w->t->process ? i : own;
    slices[i] = i % 3 == 1 ? 0 : 1000 * i + 17;
    all += slices[i];
  }
  for (int i = 0; i < own; i++) begin += slices[i];
  for (int which = 0; which <= SUMS; which++) {
    int64_t n = which < SUMS ? counts[which] : all;
    in[which] = malloc(sizeof(float) * (size_t)n);
    out[which] = which == 1 ? in[which] : malloc(sizeof(float) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) in[which][i] = term_of(w->t->process, which, i);
    bool ok =
        which < SUMS
            ? w->t->table->sum(group, in[which], out[which], n, &messages[which], why)
            : w->t->table->sum_slices(group, in[which], out[which], slices, &messages[which], why);
    EXPECT(w, ok, "sum %d of a group: %s", which, why);
  }
  for (int which = SUMS; which >= 0; which--) {
    expect_done(w, &messages[which], "a sum of a group");
    int64_t first = which < SUMS ? 0 : begin, n = which < SUMS ? counts[which] : slices[own];
    int64_t wrong = count_wrong_sums(out[which], processes, count, which, first, first + n);
    EXPECT(w, !wrong, "sum %d: %lld of %lld are wrong", which, (long long)wrong, (long long)n);
    if (out[which] != in[which]) free(out[which]);
    free(in[which]);
  }
}

/* Of all, of all twice, of every other one, of all but the first. */
static void check_groups(witness *w) {
  enum { GROUPS = 4 };
  int n = w->t->processes, processes[GROUPS][64], counts[GROUPS] = {0};
  void *groups[GROUPS];
  bool within[GROUPS] = {0};
  char why[TSR_WHY_BYTES] = "";
  if (!w->t->table->form) return;
  for (int g = 0; g < GROUPS; g++) {
    for (int i = 0; i < n; i++) {
      bool in = g < 2 || (g == 2 ? i % 2 == 0 : i > 0);
      within[g] |= in && i == w->t->process;
      if (in) processes[g][counts[g]++] = i;
    }
    if (!within[g]) continue;
    bool ok = w->t->table->form(w->t->state, processes[g], counts[g], &groups[g], why);
    EXPECT(w, ok, "form: %s", why);
  }
  for (int g = 2; g < GROUPS; g++)
    if (within[g]) check_group(w, groups[g], processes[g], counts[g]);
  /* Of two groups, even of the same processes, the sums need no common order. */
  float sums[2] = {1, 2}, out[2];
  tsr_message messages[2];
  for (int i = 0; i < 2; i++) {
    int g = w->t->process % 2 ? 1 - i : i;
    w->t->table->sum(groups[g], &sums[g], &out[g], 1, &messages[g], why);
  }
  for (int g = 0; g < 2; g++) {
    expect_done(w, &messages[g], "one of two groups of all");
    EXPECT(w, out[g] == sums[g] * (float)n, "group %d of all gives %g", g, (double)out[g]);
    check_group(w, groups[g], processes[g], counts[g]);
  }
}

/* A message that nobody sends stays pending; then somebody does. */
static void check_pending(witness *w) {
  int n = w->t->processes, next = (w->t->process + 1) % n, last = (w->t->process + n - 1) % n,
      got = 0;
  char why[TSR_WHY_BYTES] = "";
  tsr_message in = receive_from(w, last, 5, &got, sizeof got);
  meet(w);
  for (int i = 0; i < 2000; i++) {
    tsr_message_state state = w->t->table->test(w->t->state, &in, why);
    if (state != TSR_MESSAGE_PENDING) {
      EXPECT(w, false, "a message that nobody sent came");
      return;
    }
  }
  meet(w);
  tsr_message out = send_to(w, next, 5, &next, sizeof next);
  expect_done(w, &in, "a late message");
  expect_done(w, &out, "a late send");
  EXPECT(w, got == w->t->process, "%d came", got);
}

int processes_check_all(const tsr_transport *t) {
  witness w = {.t = t};
  EXPECT(&w, t->process >= 0 && t->process < t->processes, "it is one of %d", t->processes);
  EXPECT(&w, *t->table->version(t->state), "no version");
  for (int i = 0; i < t->processes; i++)
    EXPECT(&w, *t->table->host(t->state, i), "no host of process %d", i);
  static void (*const checks[])(witness *) = {check_sizes,  check_self,   check_order,
                                              check_many,   check_counts, check_sums,
                                              check_groups, check_pending};
  for (int i = 0; i < (int)(sizeof checks / sizeof *checks); i++) {
    checks[i](&w);
    meet(&w);
  }
  return w.failed;
}

int processes_check_huge(const tsr_transport *t, int64_t bytes) {
  witness w = {.t = t};
  check_ring(&w, bytes, 1, false);
  meet(&w);
  return w.failed;
}

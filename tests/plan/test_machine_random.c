// SPDX-License-Identifier: Apache-2.0
/* Properties of random and of damaged machine descriptions. */
#include "base/file_read.h"
#include "machine_sample.h"
#include "plan/path.h"
#include <limits.h>

static uint64_t random_state = 20240607;
static uint64_t random_bits(void) { /* splitmix64 */
  uint64_t z = random_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int random_below(int end) { return (int)(random_bits() % (uint64_t)end); }
static double random_positive(double scale) {
  return scale * ((1 + (double)(random_bits() >> 11)) / 9007199254740992.0);
}

static tsr_machine random_machine(tsr_arena *arena) {
  static const char *const texts[] = {
      "a",    "null", "b 2", "µs: {x}",         "\"\\\n\t\x7f", "\u2028\xc2\x85",
      "# no", "~",    "1e5", "\U0001f600\ufeff"};
  static const char *const ops[] = {"linear", "matmul", "gelu", "attention", "adamw"};
  tsr_machine m = {.name = texts[random_below(10)], .doc = texts[random_below(10)]};
  if (!random_below(4)) m.doc = "";
  m.memory = 1 + (int64_t)(random_bits() >> (13 + random_below(50)));
  m.memory_bandwidth = random_positive(1e13);
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++)
    if (t == 0 || random_below(2)) m.flops[t] = random_positive(random_below(2) ? 1e15 : 1e300);
  m.overhead = random_below(3) ? random_positive(1e-3) : 0;
  m.host_bandwidth = random_below(2) ? random_positive(1e11) : 0;
  m.threads = random_below(3);
  m.efficiency_products = random_positive(1);
  m.efficiency_attention = random_positive(1);
  m.efficiency_memory = 1;
  m.links_count = random_below(5);
  for (int l = 0; l < m.links_count; l++) {
    tsr_machine_link *link = &m.links[l];
    link->name = texts[l];
    link->devices = (l ? m.links[l - 1].devices : 1) << (1 + random_below(3));
    link->bandwidth = random_positive(1e12);
    link->latency = random_positive(1e-5);
    link->efficiency = random_positive(1);
  }
  if (m.links_count && random_below(2)) m.links[m.links_count - 1].devices = 0;
  for (int i = 0; i < random_below(6); i++) {
    tsr_machine_rate rate = {.op = ops[random_below(5)], .overhead = -1};
    rate.dtype = random_below(TSR_MACHINE_DTYPES + 1) - 1;
    rate.flops = random_positive(1e15);
    if (random_below(2)) rate.bytes = random_positive(1e13);
    if (random_below(2)) rate.call = random_positive(1e-3);
    if (random_below(2)) rate.overhead = random_positive(1e-3);
    tsr_machine_set_rate(arena, &m, &rate);
  }
  return m;
}

static void test_round_trip(void) {
  tsr_arena *arena = tsr_arena_new();
  for (int i = 0; i < 1000; i++) {
    tsr_machine m = random_machine(arena);
    sample_check_round_trip(&m);
  }
  tsr_arena_free(arena);
}

static int host_of(const tsr_mesh_shape *s, int64_t rank) {
  int host = 0, unit = 1;
  for (int d = s->ndim - 1; d >= 0; d--) {
    int at = (int)(rank % s->dims[d]);
    rank /= s->dims[d];
    host += unit * (at / (s->dims[d] / s->host_dims[d]));
    unit *= s->host_dims[d];
  }
  return host;
}

/* Paths are those of the descriptor's hosts, whatever levels the machine has. */
static void check_paths(
    tsr_arena *arena, const tsr_machine *m, const tsr_mesh *mesh, int64_t n, int64_t stride) {
  const tsr_mesh_shape *s = &mesh->shape;
  bool any_crosses = false;
  for (int64_t first = 0; first < s->devices; first++) {
    if (first / stride % n) continue; /* of a group's first members */
    int on[64] = {0}, hosts = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
      int host = host_of(s, first + i * stride);
      hosts += !on[host]++;
      if (on[host] > most) most = on[host];
    }
    any_crosses |= hosts > 1;
    tsr_path path = tsr_path_of(arena, m, first, n, stride);
    CHECK_STR(path.name, hosts > 1 ? "ib" : "nvlink");
    CHECK(path.by_host == (hosts > 1 && most > 1));
  }
  CHECK_STR(tsr_path_farthest(m, GROUP(n, stride, s->devices)), any_crosses ? "ib" : "nvlink");
}

/* How many members of the group of rank 0 lie on its host, counted by the ranks' coordinates; -1:
 * groups or hosts differ. */
static int count_on_host(const tsr_mesh_shape *s, int64_t n, int64_t stride) {
  int least = INT_MAX, most = 0;
  for (int64_t first = 0; first < s->devices; first++) {
    if (first / stride % n) continue; /* of a group's first members */
    int on[64] = {0};
    for (int64_t i = 0; i < n; i++) {
      on[host_of(s, first + i * stride)]++;
    }
    for (int h = 0; h < 64; h++) {
      if (on[h] && on[h] < least) least = on[h];
      if (on[h] > most) most = on[h];
    }
  }
  return least == most ? most : -1;
}

/* A descriptor's hosts own blocks of the mesh: what stays on a host goes over the level within
 * hosts, and only the rest over the next one. */
static void test_hosts(tsr_arena *arena, tsr_diags *diags) {
  for (int i = 0; i < 2000; i++) {
    tsr_mesh mesh = {.meshes = 1, .file = "drawn"};
    mesh.shape = (tsr_mesh_shape){.name = "", .arch = TSR_ARCH_CUDA, .devices = 1};
    tsr_mesh_shape *s = &mesh.shape;
    s->ndim = 1 + random_below(3), s->hosts = 1;
    for (int d = 0; d < s->ndim; d++) {
      s->host_dims[d] = 1 << random_below(3);
      s->dims[d] = s->host_dims[d] << random_below(3);
      s->devices *= s->dims[d], s->hosts *= s->host_dims[d];
    }
    mesh.devices = s->devices, mesh.hosts = s->hosts;
    int64_t n = 2 << random_below(4), stride = 1 << random_below(5);
    if (n * stride > s->devices) continue;
    tsr_machine *m;
    const char *why;
    double sent[TSR_MACHINE_LINKS_MAX];
    CHECK(tsr_machine_choose(arena, TSR_SOURCE_ROOT, "h100", &mesh, &m, &why, diags));
    check_paths(arena, m, &mesh, n, stride);
    if (mesh.hosts == 1 || s->devices / s->hosts > m->links[0].devices) continue;
    int inside = count_on_host(s, n, stride);
    tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_GATHER, 1, GROUP(n, stride, s->devices), sent);
    CHECK_AT(
        fabs(sent[0] - (double)(n - n / inside)) < 1e-9, "%d: %d of %d on a host, sent %g", i,
        inside, (int)n, sent[0]);
    CHECK_NEAR(sent[0] + sent[1], (double)(n - 1), 1e-9);
  }
}
static double seconds(const tsr_machine *m, int kind, double bytes, int64_t n, int64_t stride) {
  return tsr_machine_collective_seconds(
      m, (tsr_machine_collective)kind, bytes, GROUP(n, stride), NULL);
}
/* More bytes, more members and farther members never take less. Counts are powers of two: an uneven
 * group may well take longer than a bigger even one. */
static void test_monotony(void) {
  tsr_arena *arena = tsr_arena_new();
  for (int i = 0; i < 3000; i++) {
    tsr_machine m = random_machine(arena);
    int64_t n = 1 << random_below(8), stride = 1 << random_below(5);
    double bytes = random_positive(random_below(2) ? 1e9 : 1e3);
    for (int kind = TSR_MACHINE_ALL_REDUCE; kind <= TSR_MACHINE_BROADCAST; kind++) {
      double now = seconds(&m, kind, bytes, n, stride), limit = now * (1 - 1e-12);
      CHECK(now >= 0 && (n > 1) == (now > 0));
      CHECK(isinf(now) || n == 1 || seconds(&m, kind, bytes * 1.5, n, stride) > now);
      CHECK(seconds(&m, kind, bytes, 2 * n, stride) >= limit);
      CHECK(seconds(&m, kind, bytes, n, 2 * stride) >= limit);
    }
    double flops = random_positive(1e12), work = random_positive(1e9);
    double taken = sample_task(&m, "linear", TSR_MACHINE_BF16, flops, work);
    CHECK(taken > 0 && isfinite(taken));
    CHECK(sample_task(&m, "linear", TSR_MACHINE_BF16, flops * 2, work) >= taken);
    CHECK(sample_task(&m, "linear", TSR_MACHINE_BF16, flops, work * 2) >= taken);
  }
  tsr_arena_free(arena);
}
/* Damaged files are refused with a diagnostic or read; what is read can be written and read again.
 */
static void test_damage(tsr_arena *arena, tsr_diags *diags) {
  static const char alphabet[] = "{}[]:,-~&*!\"'# \n\t0123456789.eE/sBGTinafulx_\\\xc3";
  char *text;
  size_t length;
  CHECK(tsr_file_read(
      arena, TSR_SOURCE_ROOT "/configs/machines/h100.yaml", 1 << 20, TSR_NOWHERE, &text, &length,
      diags));
  int read = 0;
  for (int i = 0; i < 3000; i++) {
    tsr_arena *own = tsr_arena_new();
    tsr_diags *said = tsr_diags_new(own);
    char *copy = tsr_arena_strndup(own, text, length);
    for (int k = random_below(4); k >= 0; k--)
      copy[random_bits() % length] = alphabet[random_below(sizeof alphabet - 1)];
    size_t end = random_below(8) ? length : random_bits() % length;
    tsr_machine *m = NULL;
    bool ok = tsr_machine_parse(own, "m.yaml", copy, end, &m, said);
    CHECK(ok == (tsr_diags_errors(said) == 0));
    read += ok;
    if (ok) sample_check_round_trip(m);
    tsr_arena_free(own);
  }
  CHECK(read > 100 && read < 2900);
}
int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_hosts(arena, diags);
  test_round_trip();
  test_monotony();
  test_damage(arena, diags);
  tsr_arena_free(arena);
  return check_done("plan.machine_random");
}

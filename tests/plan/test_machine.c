/* Machine descriptions: what is read, what it says of times, and what is said of mistakes. */
#include "plan/machine.h"
#include "plan/machine_units.h"
#include "base/file.h"
#include "tests/check.h"
#include "tests/printed.h"

#define GROUP(...) ((tsr_machine_group){__VA_ARGS__})

static tsr_machine *parse(tsr_arena *arena, const char *text, tsr_diags *diags) {
  tsr_machine *m = NULL;
  return tsr_machine_parse(arena, "m.yaml", text, strlen(text), &m, diags) ? m : NULL;
}

/* ---- a small machine whose times can be told by hand ---- */

static const char small[] = "name: small\n"
                            "doc: for hands\n"
                            "device:\n"
                            "  memory: 1KiB\n"
                            "  memory_bandwidth: 10\n"
                            "  flops: {f32: 100, bf16: 1000FLOP/s}\n"
                            "  overhead: 1\n"
                            "  efficiency: {products: 0.5, attention: 0.25, memory: 0.5}\n"
                            "links:\n"
                            "- {name: near, devices: 4, bandwidth: 200B/s, latency: 1s, "
                            "efficiency: 0.5}\n"
                            "- {name: far, devices: ~, bandwidth: 10B/s, latency: 5000ms}\n";

/* `small` with `more` behind. */
static tsr_machine *small_machine(tsr_arena *arena, const char *more) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_machine *m = parse(arena, tsr_arena_printf(arena, "%s%s", small, more), diags);
  CHECK_STR(printed_diags(arena, diags), "");
  return m;
}

static void test_values(tsr_arena *arena) {
  const tsr_machine *m = small_machine(arena, "rates: ~\n");
  CHECK_STR(m->name, "small");
  CHECK_STR(m->doc, "for hands");
  CHECK_INT(m->memory, 1024);
  CHECK(m->memory_bandwidth == 10 && m->overhead == 1);
  CHECK(m->flops[TSR_MACHINE_F32] == 100 && m->flops[TSR_MACHINE_BF16] == 1000);
  CHECK(m->flops[TSR_MACHINE_TF32] == 0 && m->flops[TSR_MACHINE_FP16] == 0);
  CHECK(m->efficiency_products == 0.5 && m->efficiency_attention == 0.25);
  CHECK(m->links_count == 2 && m->rates_count == 0);
  CHECK(m->links[0].devices == 4 && m->links[1].devices == 0);
  CHECK(m->links[0].efficiency == 0.5 && m->links[1].efficiency == 1);
  CHECK(m->links[1].bandwidth == 10 && m->links[1].latency == 5);
}

static double
task(const tsr_machine *m, const char *op, tsr_machine_dtype dtype, double flops, double bytes) {
  return tsr_machine_task_seconds(m, op, dtype, (tsr_machine_work){flops, bytes, 4});
}

static void test_tasks(tsr_arena *arena) {
  tsr_machine *m = small_machine(arena, "");
  CHECK(task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(task(m, "linear", TSR_MACHINE_BF16, 100, 5) == 5 / 5. + 1);
  CHECK(task(m, "linear", TSR_MACHINE_BF16, 1000, 5) == 1000 / 500. + 1);
  CHECK(task(m, "linear", TSR_MACHINE_FP16, 100, 1) == 100 / 50. + 1);
  CHECK(task(m, "linear_dw", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(task(m, "matmul", TSR_MACHINE_TF32, 100, 1) == 100 / 50. + 1);
  CHECK(task(m, "attention", TSR_MACHINE_BF16, 1000, 5) == 1000 / 250. + 1);
  CHECK(task(m, "attention_dx", TSR_MACHINE_F32, 100, 1) == 100 / 25. + 1);
  CHECK(task(m, "gelu", TSR_MACHINE_BF16, 1000, 1) == 1000 / 100. + 1);
  CHECK(task(m, "reshape", TSR_MACHINE_F32, 0, 50) == 50 / 5. + 1);

  m = small_machine(
      arena, "rates:\n"
             "  linear: {flops: 200FLOP/s}\n"
             "  linear.bf16: {overhead: 0}\n"
             "  add: {flops: 10, bytes: 100B/s, call: 250ms}\n"
             "  gelu: {bytes: 100B/s, overhead: 500ms}\n");
  CHECK_INT(m->rates_count, 4);
  CHECK(task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 200. + 1);
  CHECK(task(m, "linear", TSR_MACHINE_FP16, 100, 1) == 100 / 200. + 1);
  CHECK(task(m, "linear", TSR_MACHINE_BF16, 1000, 5) == 0);
  CHECK(task(m, "add", TSR_MACHINE_F32, 100, 50) == 100 / 10. + 50 / 100. + 4 * 0.25 + 1);
  CHECK(task(m, "linear_dx", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(task(m, "gelu", TSR_MACHINE_F32, 50, 200) == 200 / 100. + 0.5);

  tsr_machine_rate rate = {.op = "linear", .dtype = TSR_MACHINE_EVERY_DTYPE, .overhead = 0};
  rate.flops = 400;
  tsr_machine_set_rate(arena, m, &rate);
  rate.op = "matmul";
  tsr_machine_set_rate(arena, m, &rate);
  CHECK_INT(m->rates_count, 5);
  CHECK(task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 400.);
  CHECK(task(m, "matmul", TSR_MACHINE_F32, 100, 1) == 100 / 400.);
}

static void test_levels(tsr_arena *arena) {
  tsr_machine *m = small_machine(arena, "");
  static const struct {
    tsr_machine_group group;
    int level;
  } cases[] = {
      {{1, 1}, 0},       {{4, 1}, 0},    {{2, 2}, 0},       {{2, 2, 100}, 0}, {{3, 1}, 0},
      {{3, 1, 6}, 1},    {{5, 1}, 1},    {{2, 4}, 1},       {{2, 3}, 1},      {{8, 1}, 1},
      {{2, 1, 1024}, 0}, {{4, 2, 8}, 1}, {{1 << 20, 3}, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int level = -1;
    CHECK(tsr_machine_level(m, cases[i].group, &level));
    CHECK_AT(level == cases[i].level, "case %zu: level %d", i, level);
  }
  m->links[1].devices = 8;
  int level = -1;
  CHECK(tsr_machine_level(m, GROUP(8, 1), &level) && level == 1);
  CHECK(!tsr_machine_level(m, GROUP(16, 1), &level));
  CHECK(!tsr_machine_level(m, GROUP(3, 1, 9), &level));
  const char *path = "before";
  CHECK(isinf(tsr_machine_collective_seconds(m, TSR_MACHINE_ALL_REDUCE, 1, GROUP(16, 1), &path)));
  CHECK_STR(path, "");
  CHECK(tsr_machine_collective_seconds(m, TSR_MACHINE_SEND, 100, GROUP(1, 1), &path) == 0);
  CHECK_STR(path, "");
}

/* near: 100 bytes a second after its efficiency, 1 s; far: 10 and 5 s. */
static void test_collectives(tsr_arena *arena) {
  static const struct {
    tsr_machine_collective kind;
    double bytes;
    tsr_machine_group group;
    double seconds;
    const char *path;
  } cases[] = {
      {TSR_MACHINE_ALL_REDUCE, 1000, {4, 1}, 2 * (7.5 + 3), "near"},
      {TSR_MACHINE_ALL_REDUCE, 100, {4, 1}, 2 * (1 + 2), "near"}, /* as trees */
      {TSR_MACHINE_ALL_GATHER, 100, {4, 1}, 3 + 3, "near"},
      {TSR_MACHINE_REDUCE_SCATTER, 1000, {4, 1}, 7.5 + 3, "near"},
      {TSR_MACHINE_ALL_TO_ALL, 1000, {4, 1}, 3 * (2.5 + 1), "near"},
      {TSR_MACHINE_BROADCAST, 1000, {4, 1}, 10 + 2, "near"},
      {TSR_MACHINE_BROADCAST, 1000, {3, 1}, 10 + 2, "near"},
      {TSR_MACHINE_SEND, 100, {4, 1}, 1 + 1, "near"},
      {TSR_MACHINE_REDUCE_SCATTER, 100, {2, 2, 64}, 0.5 + 1, "near"},
      /* 4 near, and two such blocks: inside 3/4 of all and 6 of the 7 edges */
      {TSR_MACHINE_REDUCE_SCATTER, 800, {8, 1}, (6 + 6) + (10 + 5), "far"},
      {TSR_MACHINE_ALL_GATHER, 100, {8, 1}, (6 + 6) + (10 + 5), "far"},
      {TSR_MACHINE_ALL_REDUCE, 800, {8, 1}, 2 * 27, "far"},
      {TSR_MACHINE_ALL_REDUCE, 8, {8, 1}, 2 * (0.8 + 2 + 5), "far"},
      {TSR_MACHINE_ALL_TO_ALL, 800, {8, 1}, 3 * (1 + 1) + 4 * (10 + 5), "far"},
      {TSR_MACHINE_BROADCAST, 800, {8, 1}, 80 + 2 + 5, "far"},
      {TSR_MACHINE_SEND, 100, {8, 1}, 10 + 5, "far"},
      /* 2 near, and two such pairs */
      {TSR_MACHINE_REDUCE_SCATTER, 400, {4, 2}, (2 + 2) + (10 + 5), "far"},
      /* nobody near */
      {TSR_MACHINE_REDUCE_SCATTER, 400, {4, 4}, 30 + 15, "far"},
      /* 4 and 2 near: uneven, so as if nobody were */
      {TSR_MACHINE_REDUCE_SCATTER, 600, {6, 1}, 50 + 25, "far"},
      {TSR_MACHINE_REDUCE_SCATTER, 300, {3, 1, 6}, 20 + 10, "far"},
      {TSR_MACHINE_REDUCE_SCATTER, 300, {3, 1}, 2 + 2, "near"},
  };
  const tsr_machine *m = small_machine(arena, "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path;
    double seconds =
        tsr_machine_collective_seconds(m, cases[i].kind, cases[i].bytes, cases[i].group, &path);
    CHECK_AT(
        fabs(seconds - cases[i].seconds) < 1e-12 * cases[i].seconds, "case %zu: %.17g, not %.17g",
        i, seconds, cases[i].seconds);
    CHECK_STR(path, cases[i].path);
  }
  /* What lies farther is not reached faster than what lies on the way. */
  tsr_machine wide = *m;
  wide.links[1].bandwidth = 1e6;
  wide.links[1].latency = 0;
  CHECK(tsr_machine_collective_seconds(&wide, TSR_MACHINE_SEND, 100, GROUP(8, 1), NULL) == 1 + 1);
}

/* ---- properties ---- */

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

static bool same_machine(const tsr_machine *a, const tsr_machine *b) {
  bool same = !strcmp(a->name, b->name) && !strcmp(a->doc, b->doc) && a->memory == b->memory &&
              a->memory_bandwidth == b->memory_bandwidth && a->threads == b->threads &&
              a->overhead == b->overhead && !memcmp(a->flops, b->flops, sizeof a->flops) &&
              a->efficiency_products == b->efficiency_products &&
              a->efficiency_attention == b->efficiency_attention &&
              a->efficiency_memory == b->efficiency_memory && a->links_count == b->links_count &&
              a->rates_count == b->rates_count;
  for (int l = 0; same && l < a->links_count; l++) {
    const tsr_machine_link *x = &a->links[l], *y = &b->links[l];
    same = !strcmp(x->name, y->name) && x->devices == y->devices && x->latency == y->latency &&
           x->bandwidth == y->bandwidth && x->efficiency == y->efficiency;
  }
  for (int i = 0; same && i < a->rates_count; i++) {
    const tsr_machine_rate *x = &a->rates[i], *y = &b->rates[i];
    same = !strcmp(x->op, y->op) && x->dtype == y->dtype && x->flops == y->flops &&
           x->bytes == y->bytes && x->call == y->call && x->overhead == y->overhead;
  }
  return same;
}

static void check_round_trip(const tsr_machine *m) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text text = {0};
  tsr_machine_write(m, &text);
  tsr_machine *again = parse(arena, text.data, diags);
  CHECK_AT(
      again && same_machine(m, again), "is not the same again:\n%s%s", text.data,
      printed_diags(arena, diags));
  tsr_text_free(&text);
  tsr_arena_free(arena);
}

static void test_round_trip(void) {
  tsr_arena *arena = tsr_arena_new();
  for (int i = 0; i < 1000; i++) {
    tsr_machine m = random_machine(arena);
    check_round_trip(&m);
  }
  tsr_arena_free(arena);
}

static double seconds(const tsr_machine *m, int kind, double bytes, int64_t n, int64_t stride) {
  return tsr_machine_collective_seconds(
      m, (tsr_machine_collective)kind, bytes, GROUP(n, stride), NULL);
}

/* What a group's members send over all levels is what the field's formulas say, however many levels
 * they lie in; and only what leaves a block goes over the next level. */
static void test_bytes(tsr_arena *arena) {
  tsr_machine *m = small_machine(arena, "");
  double sent[TSR_MACHINE_LINKS_MAX];
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_REDUCE, 100, GROUP(4, 1), sent);
  CHECK(sent[0] == 150 && sent[1] == 0);
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_REDUCE, 100, GROUP(8, 1), sent);
  CHECK(sent[0] == 150 && sent[1] == 25);
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_REDUCE, 100, GROUP(4, 4), sent);
  CHECK(sent[0] == 0 && sent[1] == 150);
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_GATHER, 10, GROUP(8, 1), sent);
  CHECK(sent[0] == 60 && sent[1] == 10);
  tsr_machine_collective_bytes(m, TSR_MACHINE_REDUCE_SCATTER, 80, GROUP(8, 1), sent);
  CHECK(sent[0] == 60 && sent[1] == 10);
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_TO_ALL, 80, GROUP(8, 1), sent);
  CHECK(sent[0] == 30 && sent[1] == 40);
  tsr_machine_collective_bytes(m, TSR_MACHINE_SEND, 80, GROUP(2, 4), sent);
  CHECK(sent[0] == 0 && sent[1] == 80);
  tsr_machine_collective_bytes(m, TSR_MACHINE_SEND, 80, GROUP(1, 4), sent);
  CHECK(sent[0] == 0 && sent[1] == 0);
}

/* A host whose threads do all ranks' work: collectives are work too, and may have rates. */
static void test_threads(tsr_arena *arena, tsr_diags *diags) {
  static const char host[] =
      "name: host\n"
      "device: {memory: 1KiB, memory_bandwidth: 10, flops: {f32: 100}, threads: 3}\n"
      "rates: {all_reduce: {bytes: 4, call: 1s}}\n";
  tsr_machine *m = parse(arena, host, diags);
  CHECK_STR(printed_diags(arena, diags), "");
  CHECK_INT(m->threads, 3);
  CHECK(task(m, "all_reduce", TSR_MACHINE_F32, 9, 8) == 2 + 4);
  tsr_text text = {0};
  tsr_machine_print(m, &text);
  CHECK(strstr(
      text.data, "  host        its 3 threads do the work of all ranks, one task after "
                 "another\n"));
  tsr_text_free(&text);
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
    double taken = task(&m, "linear", TSR_MACHINE_BF16, flops, work);
    CHECK(taken > 0 && isfinite(taken));
    CHECK(task(&m, "linear", TSR_MACHINE_BF16, flops * 2, work) >= taken);
    CHECK(task(&m, "linear", TSR_MACHINE_BF16, flops, work * 2) >= taken);
  }
  tsr_arena_free(arena);
}

/* ---- shipped ---- */

static tsr_machine *read_shipped(tsr_arena *arena, const char *name) {
  tsr_diags *diags = tsr_diags_new(arena);
  const char *path;
  tsr_machine *m = NULL;
  bool ok = tsr_machine_find(arena, TSR_SOURCE_ROOT, name, TSR_NOWHERE, &path, diags) &&
            tsr_machine_read(arena, path, TSR_NOWHERE, &m, diags);
  CHECK_AT(ok, "%s: %s", name, printed_diags(arena, diags));
  if (ok) CHECK_STR(m->name, name);
  return m;
}

static void test_shipped(tsr_arena *arena) {
  static const char *const names[] = {"cpu", "galaxy", "h100", "h200"};
  for (int i = 0; i < 4; i++) {
    const tsr_machine *m = read_shipped(arena, names[i]);
    if (!m) continue;
    CHECK(*m->doc && m->links_count && m->memory > (int64_t)1 << 33);
    check_round_trip(m);
  }
  const tsr_machine *h100 = read_shipped(arena, "h100"), *h200 = read_shipped(arena, "h200");
  CHECK(h100->flops[TSR_MACHINE_BF16] == 989.4e12 && h100->memory_bandwidth == 3.35e12);
  CHECK(h200->memory > h100->memory && h200->memory_bandwidth > h100->memory_bandwidth);
  const char *path;
  double eight =
      tsr_machine_collective_seconds(h100, TSR_MACHINE_ALL_REDUCE, 1e9, GROUP(8, 1), &path);
  CHECK_STR(path, "nvlink");
  CHECK_NEAR(eight, 2 * (1e9 * 7 / 8 / 360e9 + 7 * 2e-6), 1e-12);
  double far =
      tsr_machine_collective_seconds(h100, TSR_MACHINE_ALL_REDUCE, 1e9, GROUP(8, 8), &path);
  CHECK_STR(path, "ib");
  CHECK(far > 5 * eight);
  tsr_text text = {0};
  tsr_machine_print(h100, &text);
  CHECK_STR(
      text.data,
      "machine h100: NVIDIA H100 SXM5 80 GB, hosts of 8 with NVLink, 400 Gb/s InfiniBand per GPU\n"
      "  memory      79.6 GiB, 3.35TB/s\n"
      "  compute     f32 67TFLOP/s, tf32 494.7TFLOP/s, bf16 989.4TFLOP/s, fp16 989.4TFLOP/s\n"
      "  efficiency  products 0.7, attention 0.5, memory 0.85; a task's overhead 3us\n"
      "  link        nvlink: 8 devices, 450GB/s each way, 2us, efficiency 0.8\n"
      "  link        ib: any number of devices, 50GB/s each way, 5us, efficiency 0.9\n");
  tsr_text_free(&text);
}

static void test_find(tsr_arena *arena, tsr_diags *diags) {
  const char *path, *root = TSR_SOURCE_ROOT, *cpu = TSR_SOURCE_ROOT "/configs/machines/cpu.yaml";
  CHECK(tsr_machine_find(arena, root, "cpu", TSR_NOWHERE, &path, diags));
  CHECK_STR(path, cpu);
  CHECK(tsr_machine_find(arena, "/nowhere", cpu, TSR_NOWHERE, &path, diags));
  CHECK_STR(path, cpu);
  CHECK(!tsr_machine_find(arena, root, "h10", TSR_NOWHERE, &path, diags));
  CHECK_STR(
      printed_diags(arena, diags), "error: there is no machine 'h10'\n"
                                   "      = did you mean 'h100'?\n"
                                   "      = shipped: cpu, galaxy, h100, h200; or name a file\n"
                                   "      = looked for '" TSR_SOURCE_ROOT
                                   "/configs/machines/h10.yaml' and for the file 'h10'\n");
  CHECK(!tsr_machine_find(arena, root, "./mine.yaml", TSR_NOWHERE, &path, diags));
  CHECK_STR(
      printed_diags(arena, diags), "error: there is no machine './mine.yaml'\n"
                                   "      = shipped: cpu, galaxy, h100, h200; or name a file\n");
  CHECK(!tsr_machine_find(arena, "/nowhere", "", TSR_NOWHERE, &path, diags));
  CHECK_STR(
      printed_diags(arena, diags), "error: there is no machine ''\n"
                                   "      = shipped: none; or name a file\n");
}

/* ---- writing ---- */

static void test_write(tsr_arena *arena) {
  tsr_machine *m = small_machine(
      arena, "rates:\n"
             "  linear.bf16: {flops: 0.6PFLOP/s, overhead: 1500 ns}\n"
             "  gelu: {bytes: 1e3}\n");
  m->memory = (int64_t)81559 << 20;
  m->doc = "\"quoted\"\nand more";
  m->links[0].bandwidth = 450e9;
  m->links[1].bandwidth = 1.0 / 3;
  m->overhead = 0;
  tsr_text text = {0};
  tsr_machine_write(m, &text);
  CHECK_STR(
      text.data, "name: small\n"
                 "doc: \"\\\"quoted\\\"\\u000aand more\"\n"
                 "device:\n"
                 "  memory: 81559MiB\n"
                 "  memory_bandwidth: 10B/s\n"
                 "  flops: {f32: 100FLOP/s, bf16: 1000FLOP/s}\n"
                 "  overhead: 0\n"
                 "  efficiency: {products: 0.5, attention: 0.25, memory: 0.5}\n"
                 "links:\n"
                 "- {name: near, devices: 4, bandwidth: 450GB/s, latency: 1s, efficiency: 0.5}\n"
                 "- {name: far, bandwidth: 0.3333333333333333, latency: 5s, efficiency: 1}\n"
                 "rates:\n"
                 "  linear.bf16: {flops: 600TFLOP/s, overhead: 1.5us}\n"
                 "  gelu: {bytes: 1kB/s}\n");
  tsr_text_free(&text);
}

/* ---- mistakes ---- */

/* `small` with `from` replaced by `to`, read; the diagnostics' text. */
static const char *complain(tsr_arena *arena, const char *from, const char *to) {
  tsr_diags *diags = tsr_diags_new(arena);
  const char *cut = strstr(small, from);
  CHECK_AT(cut != NULL, "no '%s'", from);
  if (!cut) return "";
  const char *text =
      tsr_arena_printf(arena, "%.*s%s%s", (int)(cut - small), small, to, cut + strlen(from));
  CHECK(!parse(arena, text, diags));
  CHECK_INT(tsr_diags_exit_code(diags), 2);
  return printed_diags(arena, diags);
}

static void test_device_errors(tsr_arena *arena) {
  CHECK_STR(
      complain(arena, "overhead", "overheat"),
      "m.yaml:7:3: error: unknown key 'overheat' in 'device'\n"
      "    7 |   overheat: 1\n"
      "      |   ^~~~~~~~\n"
      "      = did you mean 'overhead'?\n");
  CHECK_STR(
      complain(arena, "doc", "link"),
      "m.yaml:2:1: error: unknown key 'link' in a machine description\n"
      "    2 | link: for hands\n"
      "      | ^~~~\n"
      "      = did you mean 'links'?\n");
  CHECK_STR(
      complain(arena, "  flops: {f32: 100, bf16: 1000FLOP/s}\n", ""),
      "m.yaml:3:1: error: 'device' has no flops\n"
      "    3 | device:\n"
      "      | ^~~~~~\n"
      "      = such as flops: {f32: 67TFLOP/s, bf16: 989.4TFLOP/s}\n");
  CHECK_STR(
      complain(arena, "{f32: 100, bf16: 1000FLOP/s}", "{bf16: 1}"),
      "m.yaml:6:3: error: 'flops' has no f32\n"
      "    6 |   flops: {bf16: 1}\n"
      "      |   ^~~~~\n"
      "      = such as f32: 67TFLOP/s\n");
  CHECK_STR(
      complain(arena, "bf16", "f16"), "m.yaml:6:21: error: unknown key 'f16' in 'flops'\n"
                                      "    6 |   flops: {f32: 100, f16: 1000FLOP/s}\n"
                                      "      |                     ^~~\n"
                                      "      = did you mean 'bf16'?\n");
  CHECK_STR(
      complain(arena, "0.5, attention", "50%, attention"),
      "m.yaml:8:26: error: 'products' must be a fraction above 0 and at most 1, found the text "
      "'50%'\n"
      "    8 |   efficiency: {products: 50%, attention: 0.25, memory: 0.5}\n"
      "      |                          ^~~\n");
  CHECK_STR(
      complain(arena, "0.25", "1.25"),
      "m.yaml:8:42: error: 'attention' must be a fraction above 0 and at most 1, found the number "
      "1.25\n"
      "    8 |   efficiency: {products: 0.5, attention: 1.25, memory: 0.5}\n"
      "      |                                          ^~~~\n");
  CHECK_STR(
      complain(arena, "name: small\n", "name: [1]\n"),
      "m.yaml:1:7: error: 'name' must be a text that is not empty, found a list\n"
      "    1 | name: [1]\n"
      "      |       ^\n");
}

static void test_threads_errors(tsr_arena *arena) {
  CHECK_STR(
      complain(arena, "overhead: 1", "threads: 0"),
      "m.yaml:7:12: error: 'threads' must be an integer from 1 to 65536, found the integer 0\n"
      "    7 |   threads: 0\n"
      "      |            ^\n");
}

static void test_unit_errors(tsr_arena *arena) {
  CHECK_STR(
      complain(arena, "1KiB", "3.35GHz"),
      "m.yaml:4:11: error: 'memory' must be bytes above 0, such as 80GiB, found the text "
      "'3.35GHz'\n"
      "    4 |   memory: 3.35GHz\n"
      "      |           ^~~~~~~\n"
      "      = valid: TB, GB, MB, kB, B, TiB, GiB, MiB, KiB\n");
  CHECK_STR(
      complain(arena, "bandwidth: 10", "bandwidth: 3.35TB"),
      "m.yaml:5:21: error: 'memory_bandwidth' must be bytes per second above 0, such as 450GB/s, "
      "found the text '3.35TB'\n"
      "    5 |   memory_bandwidth: 3.35TB\n"
      "      |                     ^~~~~~\n"
      "      = valid: TB/s, GB/s, MB/s, kB/s, B/s, TiB/s, GiB/s, MiB/s, KiB/s, Tb/s, Gb/s, Mb/s\n");
  CHECK_STR(
      complain(arena, "1000FLOP/s", "1TFLOPS"),
      "m.yaml:6:27: error: 'bf16' must be operations per second above 0, such as 67TFLOP/s, found "
      "the text '1TFLOPS'\n"
      "    6 |   flops: {f32: 100, bf16: 1TFLOPS}\n"
      "      |                           ^~~~~~~\n"
      "      = did you mean 'TFLOP/s'?\n");
  CHECK_STR(
      complain(arena, "overhead: 1", "overhead: -1us"),
      "m.yaml:7:13: error: 'overhead' must be seconds from 0 on, such as 5us, found the text "
      "'-1us'\n"
      "    7 |   overhead: -1us\n"
      "      |             ^~~~\n");
  CHECK_STR(
      complain(arena, "1KiB", "1e30"),
      "m.yaml:4:11: error: 'memory' is out of range (1 to 9e18 bytes), found the number 1e30\n"
      "    4 |   memory: 1e30\n"
      "      |           ^~~~\n");
  /* Never numbers, with or without a unit. */
  static const char *const bad[] = {"0",    "-5",    ".inf", "inf", "nan",
                                    "0x10", "1e999", "~",    "[]",  "GB/s"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *said =
        complain(arena, "bandwidth: 10", tsr_arena_printf(arena, "bandwidth: %s", bad[i]));
    CHECK_AT(strstr(said, "must be bytes per second above 0"), "%s: %s", bad[i], said);
  }
}

static void test_link_errors(tsr_arena *arena) {
  CHECK_STR(
      complain(arena, "devices: ~", "devices: 2"),
      "m.yaml:11:24: error: level 'far' joins 2 devices, not more than the 4 of 'near' inside it\n"
      "   11 | - {name: far, devices: 2, bandwidth: 10B/s, latency: 5000ms}\n"
      "      |                        ^\n"
      "      = levels stand from the inside out, and 'devices' counts those of all inside\n");
  CHECK_STR(
      complain(arena, "devices: ~", "devices: 10"),
      "m.yaml:11:24: error: level 'far' joins 10 devices, which is no multiple of the 4 of 'near' "
      "inside it\n"
      "   11 | - {name: far, devices: 10, bandwidth: 10B/s, latency: 5000ms}\n"
      "      |                        ^~\n"
      "      = levels stand from the inside out, and 'devices' counts those of all inside\n");
  CHECK_STR(
      complain(arena, "devices: 4, ", ""),
      "m.yaml:11:3: error: level 'far' stands outside 'near', which joins any number of devices\n"
      "   11 | - {name: far, devices: ~, bandwidth: 10B/s, latency: 5000ms}\n"
      "      |   ^\n"
      "      = say how many devices 'near' joins: devices: 8\n");
  CHECK_STR(
      complain(arena, "devices: 4", "devices: 1"),
      "m.yaml:10:25: error: 'devices' must be an integer from 2 on, or ~ for any number, found the "
      "integer 1\n"
      "   10 | - {name: near, devices: 1, bandwidth: 200B/s, latency: 1s, efficiency: 0.5}\n"
      "      |                         ^\n");
  CHECK_STR(
      complain(arena, "name: far", "name: near"),
      "m.yaml:11:10: error: two levels are called 'near'\n"
      "   11 | - {name: near, devices: ~, bandwidth: 10B/s, latency: 5000ms}\n"
      "      |          ^~~~\n");
  CHECK_STR(
      complain(arena, "latency: 1s, ", ""),
      "m.yaml:10:3: error: the level has no latency\n"
      "   10 | - {name: near, devices: 4, bandwidth: 200B/s, efficiency: 0.5}\n"
      "      |   ^\n"
      "      = such as latency: 2us\n");
}

static void test_rate_errors(tsr_arena *arena) {
  CHECK_STR(
      complain(arena, "links:", "rates: {liner: {flops: 1}}\nlinks:"),
      "m.yaml:9:9: error: 'rates' names an unknown op 'liner'\n"
      "    9 | rates: {liner: {flops: 1}}\n"
      "      |         ^~~~~\n"
      "      = did you mean 'linear'?\n");
  CHECK_STR(
      complain(arena, "links:", "rates: {linear.bf61: {flops: 1}}\nlinks:"),
      "m.yaml:9:9: error: 'linear.bf61' names an unknown type 'bf61'\n"
      "    9 | rates: {linear.bf61: {flops: 1}}\n"
      "      |         ^~~~~~~~~~~\n"
      "      = did you mean 'bf16'?\n");
  CHECK_STR(
      complain(arena, "links:", "rates: {all_reduce: {bytes: 1}}\nlinks:"),
      "m.yaml:9:9: error: 'all_reduce' is no work of one device\n"
      "    9 | rates: {all_reduce: {bytes: 1}}\n"
      "      |         ^~~~~~~~~~\n"
      "      = what collectives take follows from 'links'\n");
  CHECK_STR(
      complain(arena, "links:", "rates: {linear: {}}\nlinks:"),
      "m.yaml:9:9: error: the rate has no flops\n"
      "    9 | rates: {linear: {}}\n"
      "      |         ^~~~~~\n"
      "      = such as flops: 41TFLOP/s, or bytes, call or overhead\n");
}

static void test_whole_errors(tsr_arena *arena, tsr_diags *diags) {
  CHECK(!parse(arena, "[]\n", diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "m.yaml:1:1: error: a machine description must be a map, found a list\n"
      "    1 | []\n"
      "      | ^\n");
  /* All of a file's mistakes in one run. */
  CHECK(!parse(arena, "device: {memory: 1}\nlinks: {}\nrates: 3\n", diags));
  CHECK_STR(
      printed_diags(arena, diags), "m.yaml:1:1: error: the machine has no name\n"
                                   "    1 | device: {memory: 1}\n"
                                   "      | ^\n"
                                   "      = such as name: h100\n"
                                   "m.yaml:1:1: error: 'device' has no memory_bandwidth\n"
                                   "    1 | device: {memory: 1}\n"
                                   "      | ^~~~~~\n"
                                   "      = such as memory_bandwidth: 3.35TB/s\n"
                                   "m.yaml:1:1: error: 'device' has no flops\n"
                                   "    1 | device: {memory: 1}\n"
                                   "      | ^~~~~~\n"
                                   "      = such as flops: {f32: 67TFLOP/s, bf16: 989.4TFLOP/s}\n"
                                   "m.yaml:2:8: error: 'links' must be a list of levels, found a "
                                   "map\n"
                                   "    2 | links: {}\n"
                                   "      |        ^\n"
                                   "m.yaml:3:8: error: 'rates' must be a map of ops, found the "
                                   "integer 3\n"
                                   "    3 | rates: 3\n"
                                   "      |        ^\n");
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
    if (ok) check_round_trip(m);
    tsr_arena_free(own);
  }
  CHECK(read > 100 && read < 2900);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_values(arena);
  test_tasks(arena);
  test_levels(arena);
  test_collectives(arena);
  test_bytes(arena);
  test_threads(arena, diags);
  test_round_trip();
  test_monotony();
  test_shipped(arena);
  test_find(arena, diags);
  test_write(arena);
  test_device_errors(arena);
  test_threads_errors(arena);
  test_unit_errors(arena);
  test_link_errors(arena);
  test_rate_errors(arena);
  test_whole_errors(arena, diags);
  test_damage(arena, diags);
  tsr_arena_free(arena);
  return check_done("plan.machine");
}

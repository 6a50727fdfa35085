// SPDX-License-Identifier: Apache-2.0
/* Machine descriptions: what is read, what it says of times, and what is written. */
#include "base/file_read.h"
#include "machine_sample.h"
#include "plan/machine_units.h"

static void test_values(tsr_arena *arena) {
  const tsr_machine *m = sample_machine(arena, "rates: ~\n");
  CHECK_STR(m->name, "small");
  CHECK_STR(m->doc, "for hands");
  CHECK_INT(m->memory, 1024);
  CHECK(m->memory_bandwidth == 10 && m->overhead == 1);
  CHECK(m->host_bandwidth == 0 && tsr_machine_host_rate(m) == 16e9); /* half of PCIe's 32 GB/s */
  CHECK(m->flops[TSR_MACHINE_F32] == 100 && m->flops[TSR_MACHINE_BF16] == 1000);
  CHECK(m->flops[TSR_MACHINE_TF32] == 0 && m->flops[TSR_MACHINE_FP16] == 0);
  CHECK(m->efficiency_products == 0.5 && m->efficiency_attention == 0.25);
  CHECK(m->links_count == 2 && m->rates_count == 0);
  CHECK(m->links[0].devices == 4 && m->links[1].devices == 0);
  CHECK(m->links[0].efficiency == 0.5 && m->links[1].efficiency == 1);
  CHECK(m->links[1].bandwidth == 10 && m->links[1].latency == 5);
}
static void test_tasks(tsr_arena *arena) {
  tsr_machine *m = sample_machine(arena, "");
  CHECK(sample_task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(sample_task(m, "linear", TSR_MACHINE_BF16, 100, 5) == 5 / 5. + 1);
  CHECK(sample_task(m, "linear", TSR_MACHINE_BF16, 1000, 5) == 1000 / 500. + 1);
  CHECK(sample_task(m, "linear", TSR_MACHINE_FP16, 100, 1) == 100 / 50. + 1);
  CHECK(sample_task(m, "linear_dw", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(sample_task(m, "matmul", TSR_MACHINE_TF32, 100, 1) == 100 / 50. + 1);
  CHECK(sample_task(m, "attention", TSR_MACHINE_BF16, 1000, 5) == 1000 / 250. + 1);
  CHECK(sample_task(m, "attention_dx", TSR_MACHINE_F32, 100, 1) == 100 / 25. + 1);
  CHECK(sample_task(m, "gelu", TSR_MACHINE_BF16, 1000, 1) == 1000 / 100. + 1);
  CHECK(sample_task(m, "reshape", TSR_MACHINE_F32, 0, 50) == 50 / 5. + 1);

  m = sample_machine(
      arena, "rates:\n"
             "  linear: {flops: 200FLOP/s}\n"
             "  linear.bf16: {overhead: 0}\n"
             "  add: {flops: 10, bytes: 100B/s, call: 250ms}\n"
             "  gelu: {bytes: 100B/s, overhead: 500ms}\n");
  CHECK_INT(m->rates_count, 4);
  CHECK(sample_task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 200. + 1);
  CHECK(sample_task(m, "linear", TSR_MACHINE_FP16, 100, 1) == 100 / 200. + 1);
  CHECK(sample_task(m, "linear", TSR_MACHINE_BF16, 1000, 5) == 0);
  CHECK(sample_task(m, "add", TSR_MACHINE_F32, 100, 50) == 100 / 10. + 50 / 100. + 4 * 0.25 + 1);
  CHECK(sample_task(m, "linear_dx", TSR_MACHINE_F32, 100, 1) == 100 / 50. + 1);
  CHECK(sample_task(m, "gelu", TSR_MACHINE_F32, 50, 200) == 200 / 100. + 0.5);

  tsr_machine_rate rate = {.op = "linear", .dtype = TSR_MACHINE_EVERY_DTYPE, .overhead = 0};
  rate.flops = 400;
  tsr_machine_set_rate(arena, m, &rate);
  rate.op = "matmul";
  tsr_machine_set_rate(arena, m, &rate);
  CHECK_INT(m->rates_count, 5);
  CHECK(sample_task(m, "linear", TSR_MACHINE_F32, 100, 1) == 100 / 400.);
  CHECK(sample_task(m, "matmul", TSR_MACHINE_F32, 100, 1) == 100 / 400.);
}

static void test_levels(tsr_arena *arena) {
  tsr_machine *m = sample_machine(arena, "");
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
      {TSR_MACHINE_REDUCE, 100, {4, 1}, 3 * (1 + 1), "near"},
      {TSR_MACHINE_REDUCE_SCATTER, 100, {2, 2, 64}, 0.5 + 1, "near"},
      /* 4 near, and two such blocks: inside 3/4 of all and 6 of the 7 edges */
      {TSR_MACHINE_REDUCE_SCATTER, 800, {8, 1}, (6 + 6) + (10 + 5), "far"},
      {TSR_MACHINE_ALL_GATHER, 100, {8, 1}, (6 + 6) + (10 + 5), "far"},
      {TSR_MACHINE_ALL_REDUCE, 800, {8, 1}, 2 * 27, "far"},
      {TSR_MACHINE_ALL_REDUCE, 8, {8, 1}, 2 * (0.8 + 2 + 5), "far"},
      {TSR_MACHINE_ALL_REDUCE_DIRECTLY, 800, {8, 1}, 2 * (3 * (1 + 1) + 4 * (10 + 5)), "far"},
      {TSR_MACHINE_ALL_TO_ALL, 800, {8, 1}, 3 * (1 + 1) + 4 * (10 + 5), "far"},
      {TSR_MACHINE_BROADCAST, 800, {8, 1}, 80 + 2 + 5, "far"},
      {TSR_MACHINE_SEND, 100, {8, 1}, 10 + 5, "far"},
      {TSR_MACHINE_REDUCE, 100, {8, 1}, 3 * (1 + 1) + 4 * (10 + 5), "far"},
      /* 2 near, and two such pairs */
      {TSR_MACHINE_REDUCE_SCATTER, 400, {4, 2}, (2 + 2) + (10 + 5), "far"},
      /* nobody near */
      {TSR_MACHINE_REDUCE_SCATTER, 400, {4, 4}, 30 + 15, "far"},
      /* 4 and 2 near: uneven, so as if nobody were */
      {TSR_MACHINE_REDUCE_SCATTER, 600, {6, 1}, 50 + 25, "far"},
      {TSR_MACHINE_REDUCE_SCATTER, 300, {3, 1, 6}, 20 + 10, "far"},
      {TSR_MACHINE_REDUCE_SCATTER, 300, {3, 1}, 2 + 2, "near"},
  };
  const tsr_machine *m = sample_machine(arena, "");
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
/* What a group's members send over all levels is what the field's formulas say, however many levels
 * they lie in; and only what leaves a block goes over the next level. */
static void test_bytes(tsr_arena *arena) {
  tsr_machine *m = sample_machine(arena, "");
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
  tsr_machine_collective_bytes(m, TSR_MACHINE_ALL_REDUCE_DIRECTLY, 80, GROUP(8, 1), sent);
  CHECK(sent[0] == 60 && sent[1] == 80);
  tsr_machine_collective_bytes(m, TSR_MACHINE_SEND, 80, GROUP(2, 4), sent);
  CHECK(sent[0] == 0 && sent[1] == 80);
  tsr_machine_collective_bytes(m, TSR_MACHINE_REDUCE, 80, GROUP(8, 1), sent);
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
  tsr_machine *m = sample_parse(arena, host, diags);
  CHECK_STR(printed_diags(arena, diags), "");
  CHECK_INT(m->threads, 3);
  CHECK(sample_task(m, "all_reduce", TSR_MACHINE_F32, 9, 8) == 2 + 4);
  tsr_text text = {0};
  tsr_machine_print(m, &text);
  CHECK(strstr(
      text.data, "  host        its 3 threads do the work of all ranks, one task after "
                 "another\n"));
  tsr_text_free(&text);
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
  static const char *const names[] = {"blackhole", "cpu", "galaxy", "h100", "h200"};
  for (int i = 0; i < 5; i++) {
    const tsr_machine *m = read_shipped(arena, names[i]);
    if (!m) continue;
    CHECK(*m->doc && m->links_count && m->memory > (int64_t)1 << 33);
    sample_check_round_trip(m);
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
      printed_diags(arena, diags),
      "error: there is no machine 'h10'\n"
      "      = did you mean 'h100'?\n"
      "      = shipped: blackhole, cpu, galaxy, h100, h200; or name a file\n"
      "      = looked for '" TSR_SOURCE_ROOT
      "/configs/machines/h10.yaml' and for the file 'h10'\n");
  CHECK(!tsr_machine_find(arena, root, "./mine.yaml", TSR_NOWHERE, &path, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "error: there is no machine './mine.yaml'\n"
      "      = shipped: blackhole, cpu, galaxy, h100, h200; or name a file\n");
  CHECK(!tsr_machine_find(arena, "/nowhere", "", TSR_NOWHERE, &path, diags));
  CHECK_STR(
      printed_diags(arena, diags), "error: there is no machine ''\n"
                                   "      = shipped: none; or name a file\n");
}

/* ---- writing ---- */

static void test_write(tsr_arena *arena) {
  tsr_machine *m = sample_machine(
      arena, "rates:\n"
             "  linear.bf16: {flops: 0.6PFLOP/s, overhead: 1500 ns}\n"
             "  gelu: {bytes: 1e3}\n");
  m->memory = (int64_t)81559 << 20;
  m->doc = "\"quoted\"\nand more";
  m->links[0].bandwidth = 450e9;
  m->links[1].bandwidth = 1.0 / 3;
  m->overhead = 0;
  m->host_bandwidth = 64e9;
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
                 "  host_bandwidth: 64GB/s\n"
                 "  efficiency: {products: 0.5, attention: 0.25, memory: 0.5}\n"
                 "links:\n"
                 "- {name: near, devices: 4, bandwidth: 450GB/s, latency: 1s, efficiency: 0.5}\n"
                 "- {name: far, bandwidth: 0.3333333333333333, latency: 5s, efficiency: 1}\n"
                 "rates:\n"
                 "  linear.bf16: {flops: 600TFLOP/s, overhead: 1.5us}\n"
                 "  gelu: {bytes: 1kB/s}\n");
  tsr_text_free(&text);
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
  test_shipped(arena);
  test_find(arena, diags);
  test_write(arena);
  tsr_arena_free(arena);
  return check_done("plan.machine");
}

// SPDX-License-Identifier: Apache-2.0
/* Machine descriptions: what is said of mistakes. */
#include "machine_sample.h"

/* `sample_small` with `from` replaced by `to`, read; the diagnostics' text. */
static const char *complain(tsr_arena *arena, const char *from, const char *to) {
  tsr_diags *diags = tsr_diags_new(arena);
  const char *split = strstr(sample_small, from);
  CHECK_AT(split != NULL, "no '%s'", from);
  if (!split) return "";
  const char *text = tsr_arena_printf(
      arena, "%.*s%s%s", (int)(split - sample_small), sample_small, to, split + strlen(from));
  CHECK(!sample_parse(arena, text, diags));
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
      "      = set how many devices 'near' joins: devices: 8\n");
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
  CHECK(!sample_parse(arena, "[]\n", diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "m.yaml:1:1: error: a machine description must be a map, found a list\n"
      "    1 | []\n"
      "      | ^\n");
  /* All of a file's mistakes in one run. */
  CHECK(!sample_parse(arena, "device: {memory: 1}\nlinks: {}\nrates: 3\n", diags));
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
int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_device_errors(arena);
  test_threads_errors(arena);
  test_unit_errors(arena);
  test_link_errors(arena);
  test_rate_errors(arena);
  test_whole_errors(arena, diags);
  tsr_arena_free(arena);
  return check_done("plan.machine_errors");
}

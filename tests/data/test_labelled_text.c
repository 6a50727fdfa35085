// SPDX-License-Identifier: Apache-2.0
/* Labelled texts: tokens and classes of lines, where labels stand in samples, names in order, and
 * what is refused. */
#include "data/labelled_text.h"
#include "data/line_sources.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

enum { T = 6 };
static const tsr_location PLACE = {.file = "run.yaml", .line = 3, .col = 14};
static const char *const names[] = {"no", "perhaps", "yes"};
static tsr_arena *arena;
static tsr_diags *diags;

static tsr_label_format format_of(tsr_label_names labels) {
  return (tsr_label_format){.tokenizer = tsr_tokenizer_byte(), .labels = labels};
}

/* A line's tokens as text and its label, "abc 1", or what is said. */
static const char *encoded(const tsr_label_format *format, const char *line) {
  tsr_line_encoder e = tsr_labelled_text_encoder(format);
  tsr_text_file file = {"x.jsonl", line, strlen(line)};
  tsr_masked_tokens tokens = {0};
  tsr_text text = {0};
  CHECK(e.has_labels);
  void *state = e.open_state(e.context);
  if (!e.encode(e.context, state, arena, &file, 0, strlen(line), &tokens, diags)) {
    const char *said = scratch_diags(diags);
    e.close_state(state);
    diags = tsr_diags_new(arena);
    return said;
  }
  e.close_state(state);
  for (int64_t i = 0; i < tokens.count; i++) {
    tsr_text_add(&text, "%c", tokens.tokens[i]);
    CHECK(!tokens.trained[i]);
  }
  tsr_text_add(&text, " %d", tokens.label);
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

static void test_lines(void) {
  tsr_label_format named = format_of((tsr_label_names){names, 3});
  CHECK_STR(encoded(&named, "{\"text\": \"abc\", \"label\": \"perhaps\"}"), "abc 1");
  CHECK_STR(
      encoded(&named, " {\"label\": 2 , \"id\": [1, {}], \"text\": \"a\\n\\u0062\"}"), "a\nb 2");
  CHECK_STR(encoded(&named, "{\"label\":0,\"text\":\"x\"}"), "x 0");
  tsr_label_format numbers = format_of((tsr_label_names){NULL, 0});
  CHECK_STR(encoded(&numbers, "{\"text\": \"x\", \"label\": 123456789}"), "x 123456789");
}

static void
check_refused(const tsr_label_format *format, const char *line, int col, const char *want) {
  const char *said = encoded(format, line);
  const char *start = tsr_arena_printf(arena, "x.jsonl:1:%d: error: %s\n", col, want);
  CHECK_AT(!strncmp(said, start, strlen(start)), "%s: %s", line, said);
}

static void test_refused(void) {
  tsr_label_format named = format_of((tsr_label_names){names, 3});
  tsr_label_format numbers = format_of((tsr_label_names){NULL, 3}), sorted = named;
  sorted.are_sorted = true;
#define LABEL(label) "{\"text\": \"x\", \"label\": " label "}"
  check_refused(&named, LABEL("\"maybe\""), 24, "label 'maybe' is none of the classes");
  check_refused(&named, LABEL("\"\""), 24, "a label without characters is no class");
  check_refused(
      &named, LABEL("3"), 24, "label 3 is none of the 3 classes, whose numbers are 0 to 2");
  check_refused(
      &numbers, LABEL("2147483647"), 24,
      "label 2147483647 is none of the 3 classes, whose numbers are 0 to 2");
  check_refused(
      &numbers, LABEL("99999999999999999999"), 24,
      "label 99999999999999999999 is none of the 3 classes, whose numbers are 0 to 2");
  check_refused(
      &(tsr_label_format){.tokenizer = numbers.tokenizer}, LABEL("2147483647"), 24,
      "label 2147483647 is no number of a class, which has at most 9 digits");
  check_refused(&numbers, LABEL("\"no\""), 24, "label 'no' is a name, and the classes have none");
  check_refused(&sorted, LABEL("1"), 24, "label 1 is a number, and other lines have names");
  static const char *const odd[] = {"-1", "1.0", "1e2", "true", "null", "[1]"};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    check_refused(
        &numbers, tsr_arena_printf(arena, "{\"text\": \"x\", \"label\": %s}", odd[i]), 24,
        tsr_arena_printf(
            arena, "a label is the name of a class or its number from 0 on, not %s", odd[i]));
  check_refused(&named, "{\"text\": \"x\"}", 1, "key 'label' is missing");
  check_refused(&named, "{\"label\": 1}", 1, "key 'text' is missing");
  check_refused(
      &named, "{\"text\": 5, \"label\": 1}", 10, "key 'text' should be a text, not a number");
  check_refused(
      &named, "{\"text\": \"\", \"label\": 1}", 10,
      "the text has no tokens, and so none that its label could be at");
  check_refused(
      &named, "[\"x\", 1]", 1, "a line should be an object with the key 'text', not a list");
  check_refused(
      &named, "{\"text\": \"x\", \"label\": 1", 25,
      "expected ',' or '}' after a value, not the end of the text");
}

static void test_names(void) {
  tsr_label_collector collector = {.arena = arena, .most = 2};
  static const char text[] =
      "{\"text\": \"x\", \"label\": \"b\"}\n\n{\"label\": \"é\"}\nnot JSON\n"
      "{\"label\": 3}\n{\"label\": \"B\"}\n{\"label\": \"b\"}\n{\"label\": \"a\"}";
  tsr_label_names_collect(&collector, &(tsr_text_file){"x", text, strlen(text)});
  static const char *const want[] = {"B", "a", "b", "é"};
  CHECK_INT(collector.count, 4);
  for (int i = 0; i < 4 && i < collector.count; i++) CHECK_STR(collector.items[i], want[i]);
  CHECK_STR(collector.beyond[0], "B");
  CHECK_STR(collector.beyond[1], "a");
  CHECK(!collector.beyond[2]);
  CHECK_STR(collector.beyond_file, "x");
  CHECK_INT(collector.beyond_line, 6);
}

static void test_names_list(void) {
  static const char *const nine[] = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};
  CHECK_STR(tsr_label_names_list(arena, &(tsr_label_names){nine, 1}), "'1'");
  CHECK_STR(
      tsr_label_names_list(arena, &(tsr_label_names){nine, 8}),
      "'1', '2', '3', '4', '5', '6', '7', '8'");
  CHECK_STR(
      tsr_label_names_list(arena, &(tsr_label_names){nine, 9}),
      "'1', '2', '3', '4', '5', '6', '7', '8', …");
}

/* ---- samples ---- */

static bool open_data(tsr_packing_rule rule, const char *text, tsr_dataset *ret) {
  static tsr_label_format format;
  format = format_of((tsr_label_names){names, 3});
  tsr_data_input input = {.path = "l.jsonl", .location = PLACE};
  tsr_line_sources lines = {
      .inputs = &input,
      .inputs_count = 1,
      .tokenizer = tsr_tokenizer_byte(),
      .encoder = tsr_labelled_text_encoder(&format),
      .packing = rule,
      .labels = format.labels,
      .threads = 1};
  scratch_text("l.jsonl", text);
  bool ok = tsr_dataset_lines(arena, &lines, ret, diags);
  CHECK_AT(ok, "%s", scratch_diags(diags));
  if (!ok) return false;
  tsr_dataset_split(ret, 0);
  tsr_dataset_pack(arena, ret, T);
  return true;
}

static void
check_sample(const tsr_dataset *d, int64_t index, const char *text, const char *labels) {
  int32_t tokens[T], targets[T];
  char got[T + 1] = {0}, places[T + 1] = {0};
  tsr_dataset_fill_tokens(d, TSR_SPLIT_TRAIN, index, T, tokens, targets);
  for (int t = 0; t < T; t++) {
    got[t] = (char)tokens[t];
    places[t] = targets[t] == TSR_TARGET_IGNORED ? '.' : (char)('0' + targets[t]);
  }
  CHECK_STR(got, text);
  CHECK_STR(places, labels);
}

#define LINE(text, label) "{\"text\": \"" text "\", \"label\": " label "}\n"
static const char three[] = LINE("abcdefgh", "2") LINE("ab", "0") LINE("wxyz", "\"perhaps\"");

static void test_samples(void) {
  tsr_dataset d;
  tsr_packing_rule rule = {.best_fit = true, .padding = '_'};
  if (!open_data(rule, three, &d)) return;
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 2);
  check_sample(&d, 0, "abcdef", ".....2"); /* cut: the label is at the last token that is left */
  check_sample(&d, 1, "wxyzab", "...1.0");
  CHECK_INT(tsr_dataset_count_targets(&d, TSR_SPLIT_TRAIN, 1, T, TSR_TARGET_IGNORED), 2);
  if (!open_data((tsr_packing_rule){.padding = '_'}, three, &d)) return;
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 3);
  check_sample(&d, 1, "ab____", ".0....");
  if (!open_data((tsr_packing_rule){.drops = true, .padding = '_'}, three, &d)) return;
  CHECK_INT(tsr_dataset_samples(&d, TSR_SPLIT_TRAIN, T), 2);
  check_sample(&d, 0, "ab____", ".0....");
}

/* Other labels are other data. */
static void test_fingerprint(void) {
  static const char other[] = LINE("abcdefgh", "2") LINE("ab", "1") LINE("wxyz", "1");
  const char *const texts[] = {three, other, three};
  char prints[3][33];
  tsr_dataset d;
  for (int i = 0; i < 3; i++) {
    if (!open_data((tsr_packing_rule){.best_fit = true}, texts[i], &d)) return;
    tsr_dataset_fingerprint(&d, prints[i]);
  }
  CHECK_STR(prints[2], prints[0]);
  CHECK(strcmp(prints[1], prints[0]) != 0);
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_lines();
  test_refused();
  test_names();
  test_names_list();
  test_samples();
  test_fingerprint();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("labelled_text");
}

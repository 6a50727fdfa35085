// SPDX-License-Identifier: Apache-2.0
/* Texts of every family of models are those of whole windows, whatever pages of the cache they
 * have: with few pages texts wait for others to end, and where all attention has a window a text's
 * pages come round. */
#include "tests/check.h"
#include "text_model.h"

enum { PROMPTS = 6, NEW = 9, LONG = 200, TEXT_MAX = 1 << 14 };

/* Sizes that ship, with a short window. */
static const char *const families[] = {"nanogpt_char", "nanollama3", "nanoqwen3", "nanomixtral",
                                       "nanodeepseek", "nanoglm4",   "nanogptoss"};

static const char window_of_20[] =
    "transformer_config: {model_type: llama, vocab_size: 61, embedding_dim: 32, num_blocks: 2, "
    "num_heads: 4, num_groups: 4, intermediate_dim: 48, max_sequence_length: 256, "
    "sliding_window: 20}\n";

static const char *read_sizes(tsr_arena *arena, const char *name) {
  char *text = tsr_arena_array(arena, char, TEXT_MAX), line[512];
  FILE *file = fopen(tsr_arena_printf(arena, "configs/models/%s.yaml", name), "r");
  size_t length = 0;
  CHECK(file != NULL);
  while (file && fgets(line, sizeof line, file)) {
    const char *put = line;
    if (strstr(line, "max_sequence_length:")) put = "  max_sequence_length: 32\n";
    if (strstr(line, "num_blocks: ")) put = "  num_blocks: 2\n";
    if (strstr(line, "num_heads: 6")) put = "  num_heads: 8\n"; /* which the units of tp divide */
    if (strstr(line, "num_groups: 3")) put = "  num_groups: 4\n";
    CHECK(length + strlen(put) < TEXT_MAX);
    memcpy(text + length, put, strlen(put) + 1);
    length += strlen(put);
  }
  if (file) fclose(file);
  return text;
}

static void draw(
    tsr_arena *arena, const char *yaml, text_options o, int64_t new_tokens,
    tsr_continuation *ret_texts, int64_t *ret_pages) {
  static const int64_t lengths[PROMPTS] = {1, 20, 3, 17, 5, 11};
  tsr_prompt prompts[PROMPTS];
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_generating how = {.max_new_tokens = new_tokens};
  tsr_generating_speed speed;
  how.sampling = (tsr_sampling){1.05, 0.9, 0, 0.95, 41, 0};
  for (int p = 0; p < PROMPTS; p++) {
    int32_t *tokens = tsr_arena_array(arena, int32_t, lengths[p]);
    for (int64_t i = 0; i < lengths[p]; i++) tokens[i] = (int32_t)((p * 17 + i * 5 + i * i) % 61);
    prompts[p] = (tsr_prompt){tokens, lengths[p]};
  }
  text_model *m = text_model_open(yaml, o);
  *ret_pages = m->compiled.cache.pages_max;
  CHECK((o.chunk < 0) == (m->compiled.decode == NULL));
  if (!tsr_generate_texts(arena, &m->generator, prompts, PROMPTS, &how, ret_texts, &speed, diags))
    text_fail(diags);
  text_model_close(m);
}

static void check_same(
    const tsr_continuation *got, const tsr_continuation *want, const char *name, const char *what) {
  for (int p = 0; p < PROMPTS; p++) {
    bool same = got[p].count == want[p].count &&
                !memcmp(got[p].tokens, want[p].tokens, sizeof(int32_t) * (size_t)want[p].count);
    CHECK_AT(same && want[p].count > 0, "%s, %s: prompt %d", name, what, p);
  }
}

static void check_family(const char *name) {
  static const struct {
    const char *what;
    text_options o;
  } cases[] = {
      {"3 pages", {.rows = 4, .pages = 3}},
      {"pages of 32", {.rows = 3, .page = 32, .pages = 2}},
      {"tp 2, dp 2", {.tp = 2, .dp = 2, .rows = 4, .pages = 5, .threads = 2}}};
  tsr_arena *arena = tsr_arena_new();
  const char *yaml = read_sizes(arena, name);
  tsr_continuation want[PROMPTS], got[PROMPTS];
  int64_t pages;
  draw(arena, yaml, (text_options){.rows = 2, .chunk = -1}, NEW, want, &pages);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    draw(arena, yaml, cases[i].o, NEW, got, &pages);
    check_same(got, want, name, cases[i].what);
  }
  tsr_arena_free(arena);
}

/* Long texts have fewer pages than they have positions. */
static void test_window(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_continuation want[PROMPTS], got[PROMPTS];
  int64_t pages;
  draw(arena, window_of_20, (text_options){.rows = 3, .chunk = -1}, LONG, want, &pages);
  draw(arena, window_of_20, (text_options){.rows = 4, .chunk = 3}, LONG, got, &pages);
  CHECK_INT(pages, (20 + 96 + 3 + 15) / 16 + 1);
  check_same(got, want, "a window of 20", "8 pages");
  draw(arena, window_of_20, (text_options){.rows = 4, .chunk = 40, .pages = 13}, LONG, got, &pages);
  CHECK_INT(pages, (20 + 96 + 40 + 15) / 16 + 1);
  check_same(got, want, "a window of 20", "chunks of 40");
  tsr_arena_free(arena);
}

int main(void) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) check_family(families[i]);
  test_window();
  return check_done("cache_pages");
}

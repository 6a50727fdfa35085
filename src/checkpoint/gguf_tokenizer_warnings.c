// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_tokenizer_warnings.h"
#include <string.h>
#include <strings.h>

enum { NAMES_MAX = 8 };

/* "'<a>', '<b>'", at most NAMES_MAX of them. A message may have several lines, so a line break in a
 * name is written as "\n" here. */
static void add_name(tsr_text *names, int index, const char *name) {
  if (index == NAMES_MAX) tsr_text_add(names, ", …");
  if (index >= NAMES_MAX) return;
  tsr_text_add(names, "%s'", index ? ", " : "");
  for (; *name; name++)
    if (*name == '\n') tsr_text_add(names, "\\n");
    else tsr_text_add_bytes(names, name, 1);
  tsr_text_add(names, "'");
}

static bool takes_more(const cJSON *token, const tsr_gguf_tokens *tokens) {
  (void)tokens;
  return cJSON_IsTrue(tsr_json_get(token, "lstrip")) ||
         cJSON_IsTrue(tsr_json_get(token, "rstrip")) ||
         cJSON_IsTrue(tsr_json_get(token, "single_word"));
}

static bool is_normal(const cJSON *token, const tsr_gguf_tokens *tokens) {
  const cJSON *id = tsr_json_get(token, "id");
  return cJSON_IsNumber(id) && tsr_gguf_tokens_is_normal(tokens, id->valueint);
}

/* `format` has the file, and the names of the added tokens that are so. */
static void warn_of_added(
    const char *file, const cJSON *json, const tsr_gguf_tokens *tokens,
    bool (*is_so)(const cJSON *token, const tsr_gguf_tokens *tokens), const char *format,
    tsr_diags *diags) {
  const cJSON *item;
  tsr_text names = {0};
  int count = 0;
  cJSON_ArrayForEach(item, tsr_json_get(json, "added_tokens")) {
    const cJSON *content = tsr_json_get(item, "content");
    if (cJSON_IsString(content) && is_so(item, tokens))
      add_name(&names, count++, content->valuestring);
  }
  if (count) tsr_diag_warning(diags, TSR_NOWHERE, format, file, names.data);
  tsr_text_free(&names);
}

static void warn_of_several(
    const char *file, const char *where, const tsr_subword *subword, const int32_t *tokens,
    int count, tsr_diags *diags) {
  tsr_text names = {0};
  size_t length;
  if (count < 2) return;
  for (int i = 0; i < count; i++)
    add_name(&names, i, tsr_subword_token(subword, tokens[i], &length));
  tsr_diag_warning(
      diags, TSR_NOWHERE, "'%s' puts %d tokens %s a text, %s: llama.cpp puts at most one there",
      file, count, where, names.data);
  tsr_text_free(&names);
}

void tsr_gguf_tokenizer_warn(
    const char *file, const cJSON *json, const tsr_subword *subword, const tsr_gguf_tokens *tokens,
    tsr_diags *diags) {
  const int32_t *around;
  warn_of_added(
      file, json, tokens, takes_more,
      "'%s': llama.cpp does not know lstrip, rstrip and single_word of added tokens, so texts "
      "around %s may have other tokens there",
      diags);
  warn_of_added(
      file, json, tokens, is_normal,
      "'%s': llama.cpp divides %s in a text as any other word, because tokenizer_config.json "
      "beside it does not name them",
      diags);
  int count = tsr_subword_before(subword, &around);
  warn_of_several(file, "before", subword, around, count, diags);
  count = tsr_subword_behind(subword, &around);
  warn_of_several(file, "behind", subword, around, count, diags);
}

void tsr_gguf_tokenizer_warn_of_ends(
    const char *file, const tsr_subword *subword, bool bos, bool eos, tsr_diags *diags) {
  const int32_t *around;
  size_t length;
  int before = tsr_subword_before(subword, &around);
  if (!bos && before)
    tsr_diag_warning(
        diags, TSR_NOWHERE, "'%s' puts '%s' before a text, and llama.cpp puts no token there", file,
        tsr_subword_token(subword, around[0], &length));
  if (bos && !before)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' puts no token before a text, and llama.cpp puts the one that begins texts there",
        file);
  int behind = tsr_subword_behind(subword, &around);
  const char *end = behind ? tsr_subword_token(subword, around[0], &length) : NULL;
  if (eos)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s': llama.cpp puts %s%s%s behind every text, so behind prompts too, where generate and "
        "serve put none",
        file, end ? "'" : "the token that ends texts", end ? end : "", end ? "'" : "");
}

/* ---- spaces before texts ---- */

/* How many ▁ begin the text `special` + `text`, behind `special`, which may be NULL; -1: it has no
 * tokens, or begins with another token than `special`. */
static int
count_marks(tsr_arena *arena, const tsr_subword *subword, const char *special, const char *text) {
  static const char mark[] = "▁";
  const char *whole = special ? tsr_arena_printf(arena, "%s%s", special, text) : text;
  int64_t count, i = 0, room = tsr_subword_room(subword, whole, strlen(whole));
  int32_t *tokens = tsr_arena_array(arena, int32_t, room + 1);
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  bool ok = tsr_subword_encode(
      subword, scratch, whole, strlen(whole), tokens, &count, tsr_diags_new(arena));
  tsr_subword_scratch_free(scratch);
  if (!ok || !count || (special && tokens[i++] != tsr_subword_find(subword, special))) return -1;
  for (int marks = 0; i < count; i++) {
    size_t length;
    const char *at = tsr_subword_token(subword, tokens[i], &length);
    for (; !strncmp(at, mark, strlen(mark)); at += strlen(mark)) marks++;
    if (*at || i == count - 1) return marks;
  }
  return -1;
}

/* A special token that takes no white space around it; NULL: there is none. */
static const char *find_special(const cJSON *json) {
  const cJSON *item;
  cJSON_ArrayForEach(item, tsr_json_get(json, "added_tokens")) {
    const cJSON *content = tsr_json_get(item, "content");
    if (cJSON_IsString(content) && cJSON_IsTrue(tsr_json_get(item, "special")) &&
        !takes_more(item, NULL))
      return content->valuestring;
  }
  return NULL;
}

void tsr_gguf_tokenizer_warn_of_prefix(
    tsr_arena *arena, const char *file, const cJSON *json, const tsr_subword *subword, bool prefix,
    tsr_diags *diags) {
  const char *special = find_special(json);
  int alone = count_marks(arena, subword, NULL, "a");
  int spaced = count_marks(arena, subword, NULL, " a");
  int behind = special ? count_marks(arena, subword, special, "a") : -1;
  if (alone >= 0 && (alone > 0) != prefix) {
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' puts %s space before a text, and llama.cpp %s: texts have other tokens there", file,
        alone ? "a" : "no", prefix ? "does" : "does not");
    return;
  }
  if (spaced >= 0 && spaced != 1 + prefix)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s': a text that begins with a space begins with %d '▁', and in llama.cpp with %d: such "
        "texts have other tokens there",
        file, spaced, 1 + prefix);
  if (behind >= 0 && behind != prefix)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' puts %s space before what is behind '%s' and other special tokens, and llama.cpp %s: "
        "such texts have other tokens there",
        file, behind ? "a" : "no", special, prefix ? "does" : "does not");
}

void tsr_gguf_tokenizer_warn_of_bytes(
    const char *file, const tsr_gguf_tokens *tokens, tsr_diags *diags) {
  int count = tsr_gguf_tokens_bytes(tokens);
  if (count < 256)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' has tokens of %d of the 256 bytes: llama.cpp ends with an error at a text with a "
        "character that is no token",
        file, count);
}

/* ---- the name ---- */

static bool has_in_any_case(const char *text, const char *word) {
  for (; *text; text++)
    if (!strncasecmp(text, word, strlen(word))) return true;
  return false;
}

void tsr_gguf_tokenizer_warn_of_name(
    const char *name, const tsr_gguf_tokens *tokens, tsr_diags *diags) {
  static const char *const needed[] = {"</s>", "<unk>", "<s>", "<|endoftext|>"};
  if (!has_in_any_case(name, "phi-3") && !has_in_any_case(name, "phi3")) return;
  for (int i = 0; i < 4; i++) {
    if (tsr_gguf_tokens_has(tokens, needed[i])) continue;
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "llama.cpp takes the model for a Phi-3 by its name '%s', and does not load it without the "
        "token '%s'",
        name, needed[i]);
    tsr_diag_hint(diags, "the name is made of that of the file: --out with another one");
    return;
  }
}

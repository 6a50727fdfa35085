// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the pre-tokenizer. */
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"
#include <string.h>

/* GPT-2's, which ByteLevel has in itself. */
static const char GPT2_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool add(const tsr_subword_reader *r, tsr_step step) {
  tsr_steps *steps = &r->subword->pre_tokenizer;
  if (steps->count == TSR_SUBWORD_STEPS_MAX)
    return tsr_diag_error(
        r->diags, r->location, "the pre-tokenizer has more than %d steps", TSR_SUBWORD_STEPS_MAX);
  if (step.content) step.content_length = strlen(step.content);
  steps->steps[steps->count++] = step;
  return true;
}

static bool add_class(const tsr_subword_reader *r, unsigned classes, tsr_split_behavior behavior) {
  return add(r, (tsr_step){.kind = TSR_STEP_SPLIT, .classes = classes, .behavior = behavior});
}

/* `absent`: what a missing behaviour is; -1: it has to be there. */
static bool
read_behavior(const tsr_subword_reader *r, const cJSON *item, int absent, tsr_split_behavior *ret) {
  static const char *const names[] = {
      "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const cJSON *behavior = tsr_json_get(item, "behavior");
  const char *name = cJSON_IsString(behavior) ? behavior->valuestring : "";
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i]) || (!behavior && i == absent))
      return *ret = (tsr_split_behavior)i, true;
  tsr_diag_error(
      r->diags, r->location, "the behavior '%s' of %s is not supported", name, tsr_json_type(item));
  tsr_diag_nearest(r->diags, name, names, 5);
  return false;
}

static bool read_split(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
  tsr_step step = {.kind = TSR_STEP_SPLIT};
  return tsr_json_keys_known(r, item, "Split", known) &&
         read_behavior(r, item, -1, &step.behavior) &&
         tsr_json_flag(r, item, "invert", 0, &step.inverts) && tsr_json_pattern(r, item, &step) &&
         add(r, step);
}

static bool read_byte_level(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {
      "type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  tsr_step space = {.kind = TSR_STEP_PREPEND, .content = " ", .unless_there = true};
  tsr_step words = {.kind = TSR_STEP_SPLIT, .behavior = TSR_SPLIT_ISOLATED};
  bool adds_space, uses_regex;
  if (!tsr_json_keys_known(r, item, "ByteLevel", known) ||
      !tsr_json_flag(r, item, "add_prefix_space", -1, &adds_space) ||
      !tsr_json_flag(r, item, "use_regex", 1, &uses_regex))
    return false;
  if (adds_space && !add(r, space)) return false;
  if (uses_regex &&
      (!tsr_pattern_compile(
           r->arena, GPT2_PATTERN, false, r->subword->file, &words.pattern, r->diags) ||
       !add(r, words)))
    return false;
  return add(r, (tsr_step){.kind = TSR_STEP_BYTE_LETTERS});
}

/* A text of one character. */
static bool read_character(
    const tsr_subword_reader *r, const cJSON *item, const char *key, const char *absent,
    const char **ret_text, uint32_t *ret_code) {
  if (!tsr_json_string(r, item, key, absent, ret_text)) return false;
  size_t length = strlen(*ret_text);
  if (length && (size_t)tsr_utf8_next(*ret_text, length, ret_code) == length) return true;
  return tsr_diag_error(
      r->diags, r->location, "'%s' of %s should be one character, not '%s'", key,
      tsr_json_type(item), *ret_text);
}

/* Old files have add_prefix_space instead of prepend_scheme. */
static bool read_metaspace(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {
      "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep", NULL};
  static const char *const schemes[] = {"first", "never", "always"};
  const char *text, *scheme;
  uint32_t code;
  bool adds_space, splits;
  if (!tsr_json_keys_known(r, item, "Metaspace", known) ||
      !read_character(r, item, "replacement", NULL, &text, &code) ||
      !tsr_json_flag(r, item, "add_prefix_space", 1, &adds_space) ||
      !tsr_json_flag(r, item, "split", 1, &splits) ||
      !tsr_json_string(r, item, "prepend_scheme", "always", &scheme))
    return false;
  bool is_first = !strcmp(scheme, "first"), is_never = !adds_space || !strcmp(scheme, "never");
  if (!is_first && !is_never && strcmp(scheme, "always") != 0) {
    tsr_diag_error(
        r->diags, r->location, "the prepend_scheme '%s' of Metaspace is not supported", scheme);
    tsr_diag_nearest(r->diags, scheme, schemes, 3);
    return false;
  }
  tsr_step spaces = {.kind = TSR_STEP_REPLACE, .character = ' ', .content = text};
  tsr_step first = {
      .kind = TSR_STEP_PREPEND, .content = text, .unless_there = true, .at_begin = is_first};
  tsr_step words = {
      .kind = TSR_STEP_SPLIT, .character = code, .behavior = TSR_SPLIT_MERGED_WITH_NEXT};
  return add(r, spaces) && (is_never || add(r, first)) && (!splits || add(r, words));
}

static bool read_punctuation(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "behavior", NULL};
  tsr_step step = {.kind = TSR_STEP_SPLIT, .classes = TSR_CHAR_PUNCTUATION};
  return tsr_json_keys_known(r, item, "Punctuation", known) &&
         read_behavior(r, item, TSR_SPLIT_ISOLATED, &step.behavior) && add(r, step);
}

static bool read_digits(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "individual_digits", NULL};
  bool individual;
  return tsr_json_keys_known(r, item, "Digits", known) &&
         tsr_json_flag(r, item, "individual_digits", -1, &individual) &&
         add_class(r, TSR_CHAR_NUMERIC, individual ? TSR_SPLIT_ISOLATED : TSR_SPLIT_CONTIGUOUS);
}

static bool read_delimiter(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "delimiter", NULL};
  tsr_step step = {.kind = TSR_STEP_SPLIT, .behavior = TSR_SPLIT_REMOVED};
  const char *text;
  return tsr_json_keys_known(r, item, "CharDelimiterSplit", known) &&
         read_character(r, item, "delimiter", NULL, &text, &step.character) && add(r, step);
}

static bool read_length(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "length", NULL};
  tsr_step step = {.kind = TSR_STEP_LENGTH, .count = 5};
  if (!tsr_json_keys_known(r, item, "FixedLength", known) ||
      (tsr_json_get(item, "length") && !tsr_json_count(r, item, "length", &step.count)))
    return false;
  if (step.count) return add(r, step);
  return tsr_diag_error(r->diags, r->location, "'length' of FixedLength should be at least 1");
}

/* The steps that are no more than their type. */
static bool read_plain(const tsr_subword_reader *r, const cJSON *item, bool *ret_found) {
  static const char *const only_type[] = {"type", NULL};
  const char *type = tsr_json_type(item);
  bool is_words = !strcmp(type, "Whitespace"), is_spaces = !strcmp(type, "WhitespaceSplit");
  bool is_bert = !strcmp(type, "BertPreTokenizer"), is_scripts = !strcmp(type, "UnicodeScripts");
  *ret_found = is_words || is_spaces || is_bert || is_scripts;
  if (!*ret_found) return true;
  if (!tsr_json_keys_known(r, item, type, only_type)) return false;
  if (is_scripts) return add(r, (tsr_step){.kind = TSR_STEP_SCRIPTS});
  return add_class(r, TSR_CHAR_SPACE, TSR_SPLIT_REMOVED) &&
         (!is_words || add_class(r, TSR_CHAR_WORD, TSR_SPLIT_CONTIGUOUS)) &&
         (!is_bert || add_class(r, TSR_CHAR_PUNCTUATION, TSR_SPLIT_ISOLATED));
}

bool tsr_pre_tokenizer_read(const tsr_subword_reader *r, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return true;
  if (tsr_json_is_type(item, "Sequence")) {
    const cJSON *list, *inner;
    if (!tsr_json_sequence(r, item, "pretokenizers", &list)) return false;
    cJSON_ArrayForEach(inner, list) {
      if (!tsr_pre_tokenizer_read(r, inner)) return false;
    }
    return true;
  }
  static const struct {
    const char *type;
    bool (*read)(const tsr_subword_reader *r, const cJSON *item);
  } readers[] = {
      {"ByteLevel", read_byte_level},    {"Split", read_split},
      {"Digits", read_digits},           {"Metaspace", read_metaspace},
      {"Punctuation", read_punctuation}, {"CharDelimiterSplit", read_delimiter},
      {"FixedLength", read_length},
  };
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (tsr_json_is_type(item, readers[i].type)) return readers[i].read(r, item);
  bool found;
  if (!read_plain(r, item, &found)) return false;
  return found ||
         tsr_json_refuse_type(
             r, item, "pre-tokenizer",
             "none, ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, "
             "BertPreTokenizer, Punctuation, CharDelimiterSplit, UnicodeScripts, FixedLength, a "
             "Sequence of them");
}

// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the normalizer. */
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"
#include <string.h>

static bool add(const tsr_subword_reader *r, tsr_step step) {
  tsr_steps *steps = &r->subword->normalizer;
  if (steps->count == TSR_SUBWORD_STEPS_MAX)
    return tsr_diag_error(
        r->diags, r->location, "the normalizer has more than %d steps", TSR_SUBWORD_STEPS_MAX);
  if (step.content) step.content_length = strlen(step.content);
  steps->steps[steps->count++] = step;
  return true;
}

static bool add_form(const tsr_subword_reader *r, tsr_normal_form form) {
  return add(r, (tsr_step){.kind = TSR_STEP_FORM, .form = tsr_normalizer_new(r->arena, form)});
}

static bool read_bert(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type",          "clean_text", "handle_chinese_chars",
                                      "strip_accents", "lowercase",  NULL};
  bool cleans, spaces_ideographs, strips_accents, lowers;
  bool ok = tsr_json_keys_known(r, item, "BertNormalizer", known) &&
            tsr_json_flag(r, item, "clean_text", -1, &cleans) &&
            tsr_json_flag(r, item, "handle_chinese_chars", -1, &spaces_ideographs) &&
            tsr_json_flag(r, item, "lowercase", -1, &lowers) &&
            tsr_json_flag(r, item, "strip_accents", lowers, &strips_accents);
  if (ok && cleans) ok = add(r, (tsr_step){.kind = TSR_STEP_CLEAN});
  if (ok && spaces_ideographs) ok = add(r, (tsr_step){.kind = TSR_STEP_IDEOGRAPHS});
  if (ok && strips_accents)
    ok = add_form(r, TSR_NFD) &&
         add(r, (tsr_step){.kind = TSR_STEP_LEAVE_OUT, .classes = TSR_CHAR_NONSPACING});
  if (ok && lowers) ok = add(r, (tsr_step){.kind = TSR_STEP_LOWER});
  return ok;
}

static bool read_strip(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "strip_left", "strip_right", NULL};
  tsr_step step = {.kind = TSR_STEP_STRIP};
  return tsr_json_keys_known(r, item, "Strip", known) &&
         tsr_json_flag(r, item, "strip_left", -1, &step.strips_left) &&
         tsr_json_flag(r, item, "strip_right", -1, &step.strips_right) && add(r, step);
}

static bool read_replace(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "pattern", "content", NULL};
  tsr_step step = {.kind = TSR_STEP_REPLACE};
  return tsr_json_keys_known(r, item, "Replace", known) && tsr_json_pattern(r, item, &step) &&
         tsr_json_string(r, item, "content", NULL, &step.content) && add(r, step);
}

static bool read_prepend(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "prepend", NULL};
  tsr_step step = {.kind = TSR_STEP_PREPEND};
  return tsr_json_keys_known(r, item, "Prepend", known) &&
         tsr_json_string(r, item, "prepend", NULL, &step.content) && add(r, step);
}

static bool read_precompiled(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "precompiled_charsmap", NULL};
  tsr_step step = {.kind = TSR_STEP_CHARSMAP};
  const char *map;
  return tsr_json_keys_known(r, item, "Precompiled", known) &&
         tsr_json_string(r, item, "precompiled_charsmap", NULL, &map) &&
         tsr_charsmap_parse(r->arena, map, r->subword->file, &step.charsmap, r->diags) &&
         add(r, step);
}

/* The steps that are no more than their type. */
static const struct {
  const char *type;
  tsr_step step;
} plain[] = {
    {"Lowercase", {.kind = TSR_STEP_LOWER}},
    {"StripAccents", {.kind = TSR_STEP_LEAVE_OUT, .classes = TSR_CHAR_MARK}},
    {"Nmt", {.kind = TSR_STEP_NMT}},
    {"ByteLevel", {.kind = TSR_STEP_BYTE_LETTERS}},
};

bool tsr_normalizer_read(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const only_type[] = {"type", NULL};
  if (!item || cJSON_IsNull(item)) return true;
  if (tsr_json_is_type(item, "Sequence")) {
    const cJSON *list, *inner;
    if (!tsr_json_sequence(r, item, "normalizers", &list)) return false;
    cJSON_ArrayForEach(inner, list) {
      if (!tsr_normalizer_read(r, inner)) return false;
    }
    return true;
  }
  if (tsr_json_is_type(item, "BertNormalizer")) return read_bert(r, item);
  if (tsr_json_is_type(item, "Strip")) return read_strip(r, item);
  if (tsr_json_is_type(item, "Replace")) return read_replace(r, item);
  if (tsr_json_is_type(item, "Prepend")) return read_prepend(r, item);
  if (tsr_json_is_type(item, "Precompiled")) return read_precompiled(r, item);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (tsr_json_is_type(item, plain[i].type))
      return tsr_json_keys_known(r, item, plain[i].type, only_type) && add(r, plain[i].step);
  for (int form = 0; tsr_normal_form_names[form]; form++)
    if (tsr_json_is_type(item, tsr_normal_form_names[form]))
      return add_form(r, (tsr_normal_form)form);
  return tsr_json_refuse_type(
      r, item, "normalizer",
      "none, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, BertNormalizer, Replace, "
      "Prepend, Precompiled, ByteLevel, Nmt, a Sequence of them");
}

// SPDX-License-Identifier: Apache-2.0
/* tokenizer.json: the decoder. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <string.h>

static bool add(const tsr_subword_reader *r, tsr_decode_step step) {
  tsr_subword *s = r->subword;
  if (s->decoder_count == TSR_SUBWORD_STEPS_MAX)
    return tsr_diag_error(
        r->diags, r->location, "the decoder has more than %d steps", TSR_SUBWORD_STEPS_MAX);
  if (step.content) step.content_length = strlen(step.content);
  s->decoder[s->decoder_count++] = step;
  return true;
}

static bool is_character(const tsr_subword_reader *r, const cJSON *item, const char *text) {
  uint32_t code;
  size_t length = strlen(text);
  if (length && (size_t)tsr_utf8_next(text, length, &code) == length) return true;
  return tsr_diag_error(
      r->diags, r->location, "%s should have one character, not '%s'", tsr_json_type(item), text);
}

static bool read_metaspace(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {
      "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_METASPACE};
  const char *scheme;
  bool adds_space;
  bool ok = tsr_json_keys_known(r, item, "Metaspace", known) &&
            tsr_json_string(r, item, "replacement", NULL, &step.content) &&
            is_character(r, item, step.content) &&
            tsr_json_flag(r, item, "add_prefix_space", 1, &adds_space) &&
            tsr_json_string(r, item, "prepend_scheme", "always", &scheme);
  step.flag = ok && (!adds_space || !strcmp(scheme, "never"));
  return ok && add(r, step);
}

static bool read_wordpiece(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "prefix", "cleanup", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_WORDPIECE};
  return tsr_json_keys_known(r, item, "WordPiece", known) &&
         tsr_json_string(r, item, "prefix", NULL, &step.content) &&
         tsr_json_flag(r, item, "cleanup", -1, &step.flag) && add(r, step);
}

static bool read_strip(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "content", "start", "stop", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_STRIP};
  return tsr_json_keys_known(r, item, "Strip", known) &&
         tsr_json_string(r, item, "content", NULL, &step.content) &&
         is_character(r, item, step.content) && tsr_json_count(r, item, "start", &step.left) &&
         tsr_json_count(r, item, "stop", &step.right) && add(r, step);
}

static bool read_replace(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "pattern", "content", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_REPLACE};
  return tsr_json_keys_known(r, item, "Replace", known) &&
         tsr_json_pattern(r, item, &step.replace) &&
         tsr_json_string(r, item, "content", NULL, &step.content) && add(r, step);
}

static bool read_suffix(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "suffix", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_SUFFIX};
  return tsr_json_keys_known(r, item, "BPEDecoder", known) &&
         tsr_json_string(r, item, "suffix", NULL, &step.content) && add(r, step);
}

static bool read_ctc(const tsr_subword_reader *r, const cJSON *item) {
  static const char *const known[] = {"type", "pad_token", "word_delimiter_token", "cleanup", NULL};
  tsr_decode_step step = {.kind = TSR_DECODE_CTC};
  return tsr_json_keys_known(r, item, "CTC", known) &&
         tsr_json_string(r, item, "pad_token", NULL, &step.content) &&
         tsr_json_string(r, item, "word_delimiter_token", NULL, &step.delimiter) &&
         tsr_json_flag(r, item, "cleanup", -1, &step.flag) && add(r, step);
}

static bool read_byte_level(const tsr_subword_reader *r, const cJSON *item) {
  (void)item; /* its flags are of encoding */
  return add(r, (tsr_decode_step){.kind = TSR_DECODE_BYTE_LEVEL});
}

static bool read_byte_fallback(const tsr_subword_reader *r, const cJSON *item) {
  (void)item;
  return add(r, (tsr_decode_step){.kind = TSR_DECODE_BYTE_FALLBACK});
}

static bool read_fuse(const tsr_subword_reader *r, const cJSON *item) {
  (void)item;
  return add(r, (tsr_decode_step){.kind = TSR_DECODE_FUSE});
}

static bool read_step(const tsr_subword_reader *r, const cJSON *item) {
  static const struct {
    const char *type;
    bool (*read)(const tsr_subword_reader *r, const cJSON *item);
  } readers[] = {
      {"ByteLevel", read_byte_level},
      {"Metaspace", read_metaspace},
      {"WordPiece", read_wordpiece},
      {"ByteFallback", read_byte_fallback},
      {"Fuse", read_fuse},
      {"Strip", read_strip},
      {"Replace", read_replace},
      {"BPEDecoder", read_suffix},
      {"CTC", read_ctc},
  };
  if (tsr_json_is_type(item, "Sequence")) {
    const cJSON *list, *inner;
    if (!tsr_json_sequence(r, item, "decoders", &list)) return false;
    cJSON_ArrayForEach(inner, list) {
      if (!read_step(r, inner)) return false;
    }
    return true;
  }
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (tsr_json_is_type(item, readers[i].type)) return readers[i].read(r, item);
  return tsr_json_refuse_type(
      r, item, "decoder",
      "none, ByteLevel, Metaspace, WordPiece, ByteFallback, Fuse, Strip, Replace, BPEDecoder, CTC, "
      "a Sequence of them");
}

bool tsr_decoder_read(const tsr_subword_reader *r, const cJSON *item) {
  if (!item || cJSON_IsNull(item)) return add(r, (tsr_decode_step){.kind = TSR_DECODE_JOIN});
  return read_step(r, item);
}

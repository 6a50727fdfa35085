// SPDX-License-Identifier: Apache-2.0
/* The file is read event by event: a tree of nodes would take twenty times its tokens' memory. */
#include "data/tt_train_tokens.h"
#include <string.h>
#include <yaml.h>

static const size_t FILE_BYTES_MAX = (size_t)1 << 36;
static const size_t QUOTED_BYTES_MAX = (size_t)1 << 24; /* quoting copies the text */

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const char *path, *text;
  size_t length;
  yaml_parser_t yaml;
  yaml_event_t event; /* the last one */
  int32_t *tokens;
  int64_t count, capacity, vocab_size;
  int32_t most; /* of the tokens, and where it stands */
  tsr_location most_at;
  bool has_tokens, has_vocab;
} reader;

static tsr_location place_of(const reader *r, yaml_mark_t mark, size_t end) {
  size_t length = end > mark.index ? end - mark.index : 1;
  return (tsr_location){r->path, (int)mark.line + 1, (int)mark.column + 1, (int)length};
}

static tsr_location event_place(const reader *r) {
  bool inside = r->event.start_mark.line == r->event.end_mark.line;
  return place_of(r, r->event.start_mark, inside ? r->event.end_mark.index : 0);
}

static bool fail(const reader *r, tsr_location location, const char *message) {
  if (r->length <= QUOTED_BYTES_MAX) tsr_diags_source(r->diags, r->path, r->text, r->length);
  return tsr_diag_error(r->diags, location, "%s", message);
}

static bool next(reader *r) {
  yaml_event_delete(&r->event);
  if (yaml_parser_parse(&r->yaml, &r->event)) return true;
  return fail(
      r, place_of(r, r->yaml.problem_mark, 0),
      r->yaml.problem ? r->yaml.problem : "out of memory while reading YAML");
}

static bool is_key(const reader *r, const char *key) {
  return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == strlen(key) &&
         !memcmp(r->event.data.scalar.value, key, strlen(key));
}

/* The event's scalar as a number from 0 to INT32_MAX. */
static bool take_number(const reader *r, const char *what, int32_t *ret) {
  const char *wrong = tsr_arena_printf(r->arena, "%s is an integer from 0 to %d", what, INT32_MAX);
  if (r->event.type != YAML_SCALAR_EVENT) return fail(r, event_place(r), wrong);
  const unsigned char *digits = r->event.data.scalar.value;
  size_t length = r->event.data.scalar.length;
  int64_t number = 0;
  bool ok = length > 0 && r->event.data.scalar.plain_implicit;
  for (size_t i = 0; i < length && ok; i++) {
    number = number * 10 + (digits[i] - '0');
    ok = digits[i] >= '0' && digits[i] <= '9' && number <= INT32_MAX;
  }
  *ret = (int32_t)number;
  return ok || fail(r, event_place(r), wrong);
}

static void push(reader *r, int32_t token) {
  if (r->count == r->capacity) {
    int64_t capacity = r->capacity ? 2 * r->capacity : 1 << 16;
    int32_t *tokens = tsr_arena_array(r->arena, int32_t, capacity);
    if (r->count) memcpy(tokens, r->tokens, sizeof *tokens * (size_t)r->count);
    r->tokens = tokens;
    r->capacity = capacity;
  }
  r->tokens[r->count++] = token;
}

static bool read_tokens(reader *r) {
  if (r->event.type != YAML_SEQUENCE_START_EVENT)
    return fail(r, event_place(r), "'tokens' is a list of token numbers");
  r->most = -1;
  while (next(r)) {
    int32_t token;
    if (r->event.type == YAML_SEQUENCE_END_EVENT) return r->has_tokens = true;
    if (!take_number(r, "a token", &token)) return false;
    if (token > r->most) r->most = token, r->most_at = event_place(r);
    push(r, token);
  }
  return false;
}

/* A value of another key, to its end. */
static bool skip(reader *r) {
  for (int depth = 0;;) {
    yaml_event_type_t type = r->event.type;
    depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
    depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
    if (!depth) return true;
    if (!next(r)) return false;
  }
}

static bool read_entry(reader *r) {
  bool tokens = is_key(r, "tokens"), vocab = is_key(r, "tokenizer_vocab_size");
  tsr_location location = event_place(r);
  if ((tokens && r->has_tokens) || (vocab && r->has_vocab))
    return fail(r, location, "the key is repeated here");
  if (!skip(r) || !next(r)) return false;
  if (tokens) return read_tokens(r);
  if (!vocab) return skip(r);
  int32_t size;
  if (!take_number(r, "'tokenizer_vocab_size'", &size)) return false;
  r->vocab_size = size;
  return r->has_vocab = true;
}

static bool read_map(reader *r) {
  for (int i = 0; i < 3; i++) /* the stream, the document, its root */
    if (!next(r)) return false;
  bool is_map = r->event.type == YAML_MAPPING_START_EVENT;
  tsr_location root = {.file = r->path};
  while (is_map && next(r) && r->event.type != YAML_MAPPING_END_EVENT)
    if (!read_entry(r)) return false;
  if (is_map && r->event.type != YAML_MAPPING_END_EVENT) return false;
  if (!r->has_tokens || !r->has_vocab) {
    fail(r, root, "YAML without the keys 'tokens' and 'tokenizer_vocab_size'");
    tsr_diag_hint(r->diags, "these are tt-train's files of tokens");
    tsr_diag_hint(r->diags, "data_format: text trains on the file as it is");
    return false;
  }
  if (r->most < r->vocab_size) return true;
  return fail(
      r, r->most_at,
      tsr_arena_printf(
          r->arena, "token %d is outside the vocabulary: 'tokenizer_vocab_size' is %lld", r->most,
          (long long)r->vocab_size));
}

bool tsr_tt_train_tokens_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_token_file *ret_file,
    tsr_diags *diags) {
  reader r = {.arena = arena, .diags = diags, .path = path};
  tsr_file_map map;
  if (!tsr_file_map_open(path, 0, location, &map, diags)) return false;
  r.text = map.bytes;
  r.length = map.length;
  bool ok = r.length <= FILE_BYTES_MAX && yaml_parser_initialize(&r.yaml);
  if (ok) {
    yaml_parser_set_input_string(&r.yaml, map.bytes, map.length);
    yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
    ok = read_map(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.yaml);
  } else {
    tsr_diag_failure(diags, location, "'%s' cannot be read: it is too large", path);
  }
  tsr_file_map_close(&map);
  ret_file->type = TSR_TOKEN_I32;
  ret_file->tokens = r.tokens;
  ret_file->count = r.count;
  ret_file->vocab_size = r.vocab_size;
  return ok;
}

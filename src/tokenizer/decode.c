// SPDX-License-Identifier: Apache-2.0
/* From tokens to text, as the package's decoders have it, token by token. A step passes on what no
 * later token can change and keeps the rest. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

/* What a step has kept. */
typedef struct {
  tsr_text token;   /* the begin of a token whose end has not come; then scratch */
  tsr_text kept;    /* SUFFIX: a whole token; CTC: the one before; bytes of an open character */
  int64_t stripped; /* STRIP: from the left of this token */
  bool has_tokens, has_kept;
} step_state;

struct tsr_subword_stream {
  const tsr_subword *subword;
  tsr_arena *arena;
  tsr_match *match;
  step_state states[TSR_SUBWORD_STEPS_MAX];
  tsr_text *out;
  bool are_bytes;   /* what comes to the first step, instead of the letters for them */
  bool keeps_bytes; /* that are no UTF-8, instead of a U+FFFD */
};

tsr_subword_stream *tsr_subword_stream_new(const tsr_subword *subword, bool is_inside) {
  tsr_arena *arena = tsr_arena_new();
  tsr_subword_stream *stream = tsr_arena_array(arena, tsr_subword_stream, 1);
  stream->subword = subword;
  stream->arena = arena;
  stream->match = tsr_match_new(arena);
  for (int i = 0; is_inside && i < subword->decoder_count; i++) {
    bool keeps_token = subword->decoder[i].kind == TSR_DECODE_SUFFIX;
    stream->states[i].has_tokens = !keeps_token && subword->decoder[i].kind != TSR_DECODE_CTC;
    stream->states[i].stripped = subword->decoder[i].left;
  }
  return stream;
}

void tsr_subword_stream_free(tsr_subword_stream *stream) {
  if (!stream) return;
  for (int i = 0; i < stream->subword->decoder_count; i++) {
    tsr_text_free(&stream->states[i].token);
    tsr_text_free(&stream->states[i].kept);
  }
  tsr_match_free(stream->match);
  tsr_arena_free(stream->arena);
}

/* A text, or the begin of one, goes to a step; behind the last one it is put out. */
static void give(tsr_subword_stream *s, int level, const char *text, size_t length, bool ends);

static void give_text(tsr_subword_stream *s, int level, const tsr_text *text, bool ends) {
  give(s, level, text->data ? text->data : "", text->length, ends);
}

/* ---- replacements in a text ---- */

/* All places of `what`, from the left. */
static void replace_all(tsr_text *text, const char *what, const char *with) {
  size_t length = strlen(what);
  tsr_text made = {0};
  for (size_t at = 0; length && at < text->length;) {
    bool is_here = text->length - at >= length && !memcmp(text->data + at, what, length);
    if (is_here) tsr_text_add_bytes(&made, with, strlen(with));
    else tsr_text_add_bytes(&made, text->data + at, 1);
    at += is_here ? length : 1;
  }
  if (!length) return;
  tsr_text_free(text);
  *text = made;
}

/* English, as WordPiece and CTC clean it up, in this order. */
static void clean_up(tsr_text *text) {
  static const char *const pairs[][2] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    replace_all(text, pairs[i][0], pairs[i][1]);
}

typedef struct {
  const char *text, *content;
  size_t content_length;
  tsr_text *made;
} replacement;

static bool replace_segment(void *context, size_t begin, size_t end, bool is_match) {
  const replacement *r = context;
  if (is_match) tsr_text_add_bytes(r->made, r->content, r->content_length);
  else tsr_text_add_bytes(r->made, r->text + begin, end - begin);
  return true;
}

/* A text on which the pattern fails stays as it is. */
static void replace_pattern(tsr_subword_stream *s, const tsr_decode_step *step, tsr_text *text) {
  tsr_text made = {0};
  replacement r = {text->data ? text->data : "", step->content, step->content_length, &made};
  if (!text->length) return;
  if (tsr_step_segments(&step->replace, s->match, r.text, text->length, replace_segment, &r)) {
    tsr_text_free(text);
    *text = made;
  } else {
    tsr_text_free(&made);
  }
}

/* ---- steps on whole tokens: state->token is one, and is passed on changed ---- */

static bool starts_with(const tsr_text *text, const char *prefix, size_t length) {
  return text->length >= length && (!length || !memcmp(text->data, prefix, length));
}

static void put_wordpiece(const tsr_decode_step *step, step_state *state, bool is_first) {
  tsr_text *token = &state->token, made = {0};
  if (!is_first && starts_with(token, step->content, step->content_length)) {
    tsr_text_add_bytes(
        &made, token->data + step->content_length, token->length - step->content_length);
  } else {
    tsr_text_add(&made, "%s", is_first ? "" : " ");
    tsr_text_add_bytes(&made, token->data, token->length);
  }
  if (step->flag) clean_up(&made);
  tsr_text_free(token);
  *token = made;
}

/* The byte of "<0x0A>", or -1. */
static int fallback_byte(const tsr_text *token) {
  if (token->length != 6 || memcmp(token->data, "<0x", 3) != 0 || token->data[5] != '>') return -1;
  int byte = 0;
  for (int i = 3; i < 5; i++) {
    char c = token->data[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return -1;
    byte = 16 * byte + digit;
  }
  return byte;
}

/* Bytes in a row are a text if they are UTF-8 as a whole; else each is a U+FFFD. */
static void flush_bytes(tsr_subword_stream *s, int level, tsr_text *bytes) {
  size_t length = bytes->length;
  if (!length) return;
  if (s->keeps_bytes || tsr_utf8_valid(bytes->data, length) == length)
    give_text(s, level + 1, bytes, true);
  else
    for (size_t i = 0; i < length; i++) give(s, level + 1, REPLACEMENT, 3, true);
  bytes->length = 0;
}

static void put_byte_fallback(tsr_subword_stream *s, int level, step_state *state) {
  int byte = fallback_byte(&state->token);
  if (byte >= 0) return tsr_text_add_bytes(&state->kept, &(char){(char)byte}, 1);
  flush_bytes(s, level, &state->kept);
  give_text(s, level + 1, &state->token, true);
}

static void put_suffix(
    tsr_subword_stream *s, int level, const tsr_decode_step *step, step_state *state,
    const char *with) {
  replace_all(&state->kept, step->content, with);
  give_text(s, level + 1, &state->kept, true);
}

static void
put_ctc(tsr_subword_stream *s, int level, const tsr_decode_step *step, step_state *state) {
  tsr_text *token = &state->token;
  bool is_again = state->has_tokens && state->kept.length == token->length &&
                  (!token->length || !memcmp(state->kept.data, token->data, token->length));
  if (is_again) return;
  state->kept.length = 0;
  tsr_text_add_bytes(&state->kept, token->data ? token->data : "", token->length);
  replace_all(token, step->content, "");
  if (step->flag) {
    clean_up(token);
    replace_all(token, step->delimiter, " ");
  }
  if (token->length) give_text(s, level + 1, token, true);
}

static size_t char_bytes(const char *text, size_t length) {
  uint32_t code;
  int bytes = length ? tsr_utf8_next(text, length, &code) : 0;
  return bytes ? (size_t)bytes : 1;
}

static void
put_strip(tsr_subword_stream *s, int level, const tsr_decode_step *step, const tsr_text *token) {
  const char *text = token->data ? token->data : "";
  size_t length = token->length, begin = 0, one = step->content_length;
  for (int64_t i = 0; i < step->left && length - begin >= one; i++) {
    if (memcmp(text + begin, step->content, one) != 0) break;
    begin += one;
  }
  for (int64_t i = 0; i < step->right && length - begin >= one; i++) {
    if (memcmp(text + length - one, step->content, one) != 0) break;
    length -= one;
  }
  give(s, level + 1, text + begin, length - begin, true);
}

/* A whole token has come to a step that needs it whole. */
static void put_token(tsr_subword_stream *s, int level) {
  const tsr_decode_step *step = &s->subword->decoder[level];
  step_state *state = &s->states[level];
  switch (step->kind) {
  case TSR_DECODE_WORDPIECE:
    put_wordpiece(step, state, !state->has_tokens);
    give_text(s, level + 1, &state->token, true);
    break;
  case TSR_DECODE_BYTE_FALLBACK:
    put_byte_fallback(s, level, state);
    break;
  case TSR_DECODE_REPLACE:
    replace_pattern(s, step, &state->token);
    give_text(s, level + 1, &state->token, true);
    break;
  case TSR_DECODE_STRIP:
    put_strip(s, level, step, &state->token);
    break;
  case TSR_DECODE_SUFFIX: {
    if (state->has_tokens) put_suffix(s, level, step, state, " ");
    tsr_text token = state->token; /* it waits for the next */
    state->token = state->kept;
    state->kept = token;
    break;
  }
  case TSR_DECODE_CTC:
    put_ctc(s, level, step, state);
    break;
  default:
    assert(false);
  }
  state->token.length = 0;
  state->has_tokens = true;
}

/* ---- steps that need no whole tokens ---- */

static void
put_metaspace(tsr_subword_stream *s, int level, const char *text, size_t length, bool ends) {
  const tsr_decode_step *step = &s->subword->decoder[level];
  step_state *state = &s->states[level];
  bool leaves_out = !state->has_tokens && !step->flag;
  state->token.length = 0;
  for (size_t at = 0, bytes; at < length; at += bytes) {
    bytes = char_bytes(text + at, length - at);
    bool is_it = bytes == step->content_length && !memcmp(text + at, step->content, bytes);
    if (!is_it) tsr_text_add_bytes(&state->token, text + at, bytes);
    else if (!leaves_out) tsr_text_add_bytes(&state->token, " ", 1);
  }
  give_text(s, level + 1, &state->token, ends);
  state->has_tokens |= ends;
}

/* Whole characters, with U+FFFD for what is broken; of `bytes` an open character stays. */
static void put_valid(tsr_subword_stream *s, int level, tsr_text *bytes, bool is_end) {
  size_t at = 0;
  while (at < bytes->length) {
    size_t valid = tsr_utf8_valid(bytes->data + at, bytes->length - at);
    give(s, level + 1, bytes->data + at, valid, false);
    at += valid;
    if (at == bytes->length) break;
    bool is_open;
    size_t broken = tsr_utf8_broken(bytes->data + at, bytes->length - at, &is_open);
    if (is_open && !is_end) break;
    if (s->keeps_bytes) give(s, level + 1, bytes->data + at, broken, false);
    else give(s, level + 1, REPLACEMENT, 3, false);
    at += broken;
  }
  if (at < bytes->length) memmove(bytes->data, bytes->data + at, bytes->length - at);
  bytes->length -= at;
}

/* A token of letters becomes their bytes; one with anything else stays as it is. */
static void put_letters(tsr_subword_stream *s, int level, step_state *state) {
  tsr_text bytes = {0};
  bool is_mapped =
      !s->are_bytes && state->token.length && tsr_byte_letters_unmap(state->token.data, &bytes);
  const tsr_text *from = is_mapped ? &bytes : &state->token;
  tsr_text_add_bytes(&state->kept, from->data ? from->data : "", from->length);
  tsr_text_free(&bytes);
  state->token.length = 0;
  put_valid(s, level, &state->kept, false);
}

/* STRIP on the left alone: what is behind the first character that stays goes on at once. */
static void
put_left_stripped(tsr_subword_stream *s, int level, const char *text, size_t length, bool ends) {
  const tsr_decode_step *step = &s->subword->decoder[level];
  step_state *state = &s->states[level];
  size_t one = step->content_length;
  for (; state->stripped < step->left && length >= one; state->stripped++) {
    if (memcmp(text, step->content, one) != 0) break;
    text += one;
    length -= one;
  }
  if (length) state->stripped = step->left;
  give(s, level + 1, text, length, ends);
  if (ends) state->stripped = 0;
}

static void
put_joined(tsr_subword_stream *s, int level, const char *text, size_t length, bool ends) {
  step_state *state = &s->states[level];
  if (state->has_tokens) give(s, level + 1, " ", 1, false);
  state->has_tokens = true;
  give(s, level + 1, text, length, ends);
}

static void give(tsr_subword_stream *s, int level, const char *text, size_t length, bool ends) {
  if (level == s->subword->decoder_count) return tsr_text_add_bytes(s->out, text, length);
  const tsr_decode_step *step = &s->subword->decoder[level];
  step_state *state = &s->states[level];
  if (step->kind == TSR_DECODE_JOIN) return put_joined(s, level, text, length, ends);
  if (step->kind == TSR_DECODE_FUSE) return give(s, level + 1, text, length, false);
  if (step->kind == TSR_DECODE_METASPACE) return put_metaspace(s, level, text, length, ends);
  if (step->kind == TSR_DECODE_STRIP && !step->right)
    return put_left_stripped(s, level, text, length, ends);
  tsr_text_add_bytes(&state->token, text, length);
  if (!ends) return;
  if (step->kind == TSR_DECODE_BYTE_LEVEL) put_letters(s, level, state);
  else put_token(s, level);
}

/* No more tokens come. */
static void finish(tsr_subword_stream *s, int level) {
  if (level == s->subword->decoder_count) return;
  const tsr_decode_step *step = &s->subword->decoder[level];
  step_state *state = &s->states[level];
  if (step->kind == TSR_DECODE_BYTE_FALLBACK) flush_bytes(s, level, &state->kept);
  if (step->kind == TSR_DECODE_SUFFIX && state->has_tokens) put_suffix(s, level, step, state, "");
  if (step->kind == TSR_DECODE_BYTE_LEVEL) put_valid(s, level, &state->kept, true);
  if (step->kind == TSR_DECODE_BYTE_LEVEL || step->kind == TSR_DECODE_FUSE)
    give(s, level + 1, "", 0, true);
  finish(s, level + 1);
}

/* An added token decodes to what the normalizer makes of it: so it is in the package. */
static const tsr_added_token *find_normalized(const tsr_subword *subword, int32_t token) {
  const tsr_added_token *items = subword->normalized.items;
  int i = 0;
  while (items[i].token != token) i++;
  return &items[i];
}

void tsr_subword_stream_add(tsr_subword_stream *s, int32_t token, tsr_text *out) {
  const tsr_subword *subword = s->subword;
  assert(token >= 0 && token < subword->vocab_size);
  if (!subword->texts[token]) return;
  s->out = out;
  s->are_bytes =
      subword->model == TSR_MODEL_BPE_BYTES && !(subword->flags[token] & TSR_TOKEN_ADDED);
  if (!(subword->flags[token] & TSR_TOKEN_NORMALIZED))
    return give(s, 0, subword->texts[token], subword->lengths[token], true);
  const tsr_added_token *added = find_normalized(subword, token);
  give(s, 0, added->text, added->length, true);
}

void tsr_subword_stream_end(tsr_subword_stream *s, tsr_text *out) {
  s->out = out;
  finish(s, 0);
}

void tsr_subword_token_text(const tsr_subword *subword, int32_t token, tsr_text *out) {
  assert(token >= 0 && token < subword->vocab_size);
  if (subword->model == TSR_MODEL_BPE_BYTES) {
    const char *text = subword->texts[token];
    return tsr_text_add_bytes(out, text ? text : "", text ? subword->lengths[token] : 0);
  }
  tsr_subword_stream *stream = tsr_subword_stream_new(subword, true);
  stream->keeps_bytes = true;
  tsr_subword_stream_add(stream, token, out);
  tsr_subword_stream_end(stream, out);
  tsr_subword_stream_free(stream);
}

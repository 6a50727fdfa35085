// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer.h"
#include "base/utf8.h"
#include <assert.h>
#include <string.h>

static bool bad_utf8(const tsr_text_file *file, size_t offset, tsr_diags *diags) {
  tsr_diag_error(
      diags, tsr_text_file_place(file, offset, 1, diags), "invalid UTF-8: byte 0x%02x",
      (unsigned char)file->text[offset]);
  tsr_diag_hint(diags, "tokenizer_type: byte reads any file");
  return false;
}

/* Sets the bit of each character in the text. */
static bool mark_chars(const tsr_text_file *file, uint8_t *bits, tsr_diags *diags) {
  for (size_t at = 0; at < file->length;) {
    uint32_t code;
    int bytes = tsr_utf8_next(file->text + at, file->length - at, &code);
    if (!bytes) return bad_utf8(file, at, diags);
    bits[code / 8] |= (uint8_t)(1u << code % 8);
    at += (size_t)bytes;
  }
  return true;
}

static void collect_chars(tsr_arena *arena, const uint8_t *bits, tsr_tokenizer *tokenizer) {
  int32_t count = 0;
  for (int i = 0; i < TSR_UTF8_CODES / 8; i++) count += __builtin_popcount(bits[i]);
  uint32_t *chars = tsr_arena_array(arena, uint32_t, count);
  int32_t token = 0;
  for (uint32_t code = 0; code < TSR_UTF8_CODES; code++) {
    bool is_found = bits[code / 8] >> code % 8 & 1;
    if (code < 128) tokenizer->ascii[code] = is_found ? token : -1;
    if (is_found) chars[token++] = code;
  }
  tokenizer->chars = chars;
  tokenizer->vocab_size = count;
}

bool tsr_tokenizer_char(
    tsr_arena *arena, const tsr_text_file *files, int count, tsr_tokenizer *ret_tokenizer,
    tsr_diags *diags) {
  tsr_arena *scratch = tsr_arena_new();
  uint8_t *bits = tsr_arena_alloc(scratch, TSR_UTF8_CODES / 8);
  bool ok = true;
  for (int i = 0; i < count; i++) ok &= mark_chars(&files[i], bits, diags);
  *ret_tokenizer = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  if (ok) collect_chars(arena, bits, ret_tokenizer);
  tsr_arena_free(scratch);
  return ok;
}

tsr_tokenizer tsr_tokenizer_byte(void) {
  return (tsr_tokenizer){.kind = TSR_TOKENIZER_BYTE, .vocab_size = 256};
}

tsr_tokenizer tsr_tokenizer_ids(int32_t vocab_size) {
  assert(vocab_size > 0);
  return (tsr_tokenizer){.kind = TSR_TOKENIZER_IDS, .vocab_size = vocab_size};
}

tsr_tokenizer tsr_tokenizer_subword(const tsr_subword *subword) {
  return (tsr_tokenizer){
      .kind = TSR_TOKENIZER_SUBWORD,
      .vocab_size = tsr_subword_vocab_size(subword),
      .subword = subword};
}

int64_t tsr_tokenizer_room(const tsr_tokenizer *tokenizer, const char *text, size_t length) {
  if (tokenizer->kind == TSR_TOKENIZER_SUBWORD)
    return tsr_subword_room(tokenizer->subword, text, length);
  return (int64_t)length;
}

/* The character's token, or -1. */
static int32_t find_char(const tsr_tokenizer *tokenizer, uint32_t code) {
  if (code < 128) return tokenizer->ascii[code];
  int32_t low = 0, high = tokenizer->vocab_size;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (tokenizer->chars[middle] < code) low = middle + 1;
    else high = middle;
  }
  return low < tokenizer->vocab_size && tokenizer->chars[low] == code ? low : -1;
}

static bool encode_chars(
    const tsr_tokenizer *tokenizer, const tsr_text_file *file, int32_t *ret_tokens,
    int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags) {
  int64_t count = 0;
  for (size_t at = 0; at < file->length;) {
    uint32_t code;
    int bytes = tsr_utf8_next(file->text + at, file->length - at, &code);
    if (!bytes) return bad_utf8(file, at, diags);
    int32_t token = find_char(tokenizer, code);
    if (token < 0) {
      bool is_visible = code > ' ' && code != 0x7f;
      return tsr_diag_error(
          diags, tsr_text_file_place(file, at, bytes, diags),
          "character %s%.*s%sU+%04X%s is not in the vocabulary of %d characters",
          is_visible ? "'" : "", is_visible ? bytes : 0, file->text + at, is_visible ? "' (" : "",
          code, is_visible ? ")" : "", tokenizer->vocab_size);
    }
    if (ret_begins) ret_begins[count] = (int64_t)at;
    ret_tokens[count++] = token;
    at += (size_t)bytes;
  }
  *ret_count = count;
  return true;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool encode_ids(
    const tsr_tokenizer *tokenizer, const tsr_text_file *file, int32_t *ret_tokens,
    int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags) {
  int64_t count = 0;
  for (size_t at = 0, end; at < file->length; at = end) {
    end = at + 1;
    if (is_space(file->text[at])) continue;
    int64_t number = 0;
    bool is_number = true;
    for (end = at; end < file->length && !is_space(file->text[end]); end++) {
      char c = file->text[end];
      is_number &= c >= '0' && c <= '9';
      if (is_number && number <= INT32_MAX) number = number * 10 + (c - '0');
    }
    if (is_number && number < tokenizer->vocab_size) {
      if (ret_begins) ret_begins[count] = (int64_t)at;
      ret_tokens[count++] = (int32_t)number;
      continue;
    }
    int length = end - at < 40 ? (int)(end - at) : 40;
    tsr_location location = tsr_text_file_place(file, at, length, diags);
    const char *word = file->text + at;
    return is_number
               ? tsr_diag_error(
                     diags, location, "token %.*s is outside the vocabulary of %d tokens", length,
                     word, tokenizer->vocab_size)
               : tsr_diag_error(diags, location, "'%.*s' is not a token number", length, word);
  }
  *ret_count = count;
  return true;
}

static bool encode_bpe(
    const tsr_subword *subword, tsr_subword_scratch *given, const tsr_text_file *file,
    int32_t *ret_tokens, int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags) {
  tsr_subword_scratch *scratch = given ? given : tsr_subword_scratch_new();
  bool ok = tsr_subword_encode_begins(
      subword, scratch, file->text, file->length, ret_tokens, ret_begins, ret_count, diags);
  if (!given) tsr_subword_scratch_free(scratch);
  return ok;
}

bool tsr_tokenizer_encode_begins(
    const tsr_tokenizer *tokenizer, tsr_subword_scratch *scratch, const tsr_text_file *file,
    int32_t *ret_tokens, int64_t *ret_begins, int64_t *ret_count, tsr_diags *diags) {
  bool ok = true;
  switch (tokenizer->kind) {
  case TSR_TOKENIZER_CHAR:
    ok = encode_chars(tokenizer, file, ret_tokens, ret_begins, ret_count, diags);
    break;
  case TSR_TOKENIZER_IDS:
    ok = encode_ids(tokenizer, file, ret_tokens, ret_begins, ret_count, diags);
    break;
  case TSR_TOKENIZER_SUBWORD:
    ok = encode_bpe(tokenizer->subword, scratch, file, ret_tokens, ret_begins, ret_count, diags);
    break;
  case TSR_TOKENIZER_BYTE:
    *ret_count = (int64_t)file->length;
    for (size_t i = 0; i < file->length; i++) {
      ret_tokens[i] = (unsigned char)file->text[i];
      if (ret_begins) ret_begins[i] = (int64_t)i;
    }
    break;
  }
  if (ok && ret_begins) ret_begins[*ret_count] = (int64_t)file->length;
  return ok;
}

bool tsr_tokenizer_encode(
    const tsr_tokenizer *tokenizer, const tsr_text_file *file, int32_t *ret_tokens,
    int64_t *ret_count, tsr_diags *diags) {
  return tsr_tokenizer_encode_begins(tokenizer, NULL, file, ret_tokens, NULL, ret_count, diags);
}

void tsr_tokenizer_token_text(const tsr_tokenizer *tokenizer, int32_t token, tsr_text *text) {
  assert(token >= 0 && token < tokenizer->vocab_size);
  char bytes[16] = {(char)token};
  int length = 1;
  switch (tokenizer->kind) {
  case TSR_TOKENIZER_SUBWORD:
    return tsr_subword_token_text(tokenizer->subword, token, text);
  case TSR_TOKENIZER_CHAR:
    length = tsr_utf8_put(tokenizer->chars[token], bytes);
    break;
  case TSR_TOKENIZER_IDS:
    length = snprintf(bytes, sizeof bytes, "%d", token);
    break;
  case TSR_TOKENIZER_BYTE:
    break;
  }
  tsr_text_add_bytes(text, bytes, (size_t)length);
}

void tsr_tokenizer_decode(
    const tsr_tokenizer *tokenizer, const int32_t *tokens, int64_t count, tsr_text *text) {
  bool is_subword = tokenizer->kind == TSR_TOKENIZER_SUBWORD;
  tsr_subword_stream *stream =
      is_subword ? tsr_subword_stream_new(tokenizer->subword, false) : NULL;
  for (int64_t i = 0; i < count; i++) {
    assert(tokens[i] >= 0 && tokens[i] < tokenizer->vocab_size);
    if (i && tokenizer->kind == TSR_TOKENIZER_IDS) tsr_text_add(text, " ");
    if (stream) tsr_subword_stream_add(stream, tokens[i], text);
    else tsr_tokenizer_token_text(tokenizer, tokens[i], text);
  }
  if (stream) tsr_subword_stream_end(stream, text);
  tsr_subword_stream_free(stream);
}

/* ---- token by token ---- */

struct tsr_token_stream {
  const tsr_tokenizer *tokenizer;
  tsr_subword_stream *subword; /* NULL: of another kind */
  tsr_text open;               /* the begin of a character */
  bool has_tokens;
};

tsr_token_stream *
tsr_token_stream_new(tsr_arena *arena, const tsr_tokenizer *tokenizer, bool is_inside) {
  tsr_token_stream *stream = tsr_arena_array(arena, tsr_token_stream, 1);
  stream->tokenizer = tokenizer;
  stream->has_tokens = is_inside;
  if (tokenizer->kind == TSR_TOKENIZER_SUBWORD)
    stream->subword = tsr_subword_stream_new(tokenizer->subword, is_inside);
  return stream;
}

void tsr_token_stream_add(tsr_token_stream *s, int32_t token, tsr_text *text) {
  if (s->subword) return tsr_subword_stream_add(s->subword, token, text);
  if (s->has_tokens && s->tokenizer->kind == TSR_TOKENIZER_IDS) tsr_text_add(text, " ");
  s->has_tokens = true;
  tsr_tokenizer_token_text(s->tokenizer, token, &s->open);
  size_t whole = tsr_tokenizer_whole(s->open.data, s->open.length);
  tsr_text_add_bytes(text, s->open.data, whole);
  memmove(s->open.data, s->open.data + whole, s->open.length - whole);
  s->open.length -= whole;
}

void tsr_token_stream_end(tsr_token_stream *s, tsr_text *text) {
  if (!s) return;
  if (s->subword) tsr_subword_stream_end(s->subword, text);
  else tsr_text_add_bytes(text, s->open.data ? s->open.data : "", s->open.length);
  tsr_subword_stream_free(s->subword);
  tsr_text_free(&s->open);
}

/* ---- tokens by name ---- */

int32_t tsr_tokenizer_newline(const tsr_tokenizer *tokenizer) {
  switch (tokenizer->kind) {
  case TSR_TOKENIZER_CHAR:
    return tokenizer->ascii['\n'];
  case TSR_TOKENIZER_BYTE:
    return '\n';
  case TSR_TOKENIZER_IDS:
    return -1;
  case TSR_TOKENIZER_SUBWORD:
    break;
  }
  int32_t newline = tsr_subword_find(tokenizer->subword, "\n");
  return newline >= 0 ? newline : tsr_subword_find(tokenizer->subword, "<0x0A>");
}

int64_t tsr_tokenizer_end_of_text(const tsr_tokenizer *tokenizer) {
  static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
  for (int i = 0; i < 4 && tokenizer->kind == TSR_TOKENIZER_SUBWORD; i++) {
    int32_t token = tsr_subword_find(tokenizer->subword, names[i]);
    if (token >= 0 && tsr_subword_is_special(tokenizer->subword, token)) return token;
  }
  return -1;
}

size_t tsr_tokenizer_whole(const char *bytes, size_t length) {
  /* The last character's lead byte is one of the last three, if it is not whole. */
  for (size_t back = 1; back <= 3 && back <= length; back++) {
    unsigned char byte = (unsigned char)bytes[length - back];
    if ((byte & 0xc0) == 0x80) continue;
    size_t wants = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return wants > back && byte < 0xf5 ? length - back : length;
  }
  return length;
}

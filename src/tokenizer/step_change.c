// SPDX-License-Identifier: Apache-2.0
/* The steps that change a piece. */
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"
#include <string.h>

/* A character of a piece. */
typedef struct {
  uint32_t code;
  size_t begin, end;
} character;

static bool next_character(const tsr_piece *piece, character *c) {
  if (c->end >= piece->length) return false;
  c->begin = c->end;
  c->end += (size_t)tsr_utf8_next(piece->text + c->begin, piece->length - c->begin, &c->code);
  return true;
}

static void add_code(tsr_piece_buffer *b, uint32_t code, size_t from) {
  char bytes[TSR_UTF8_BYTES_MAX];
  tsr_piece_add(b, bytes, (size_t)tsr_utf8_put(code, bytes), from);
}

static void apply_form(
    const tsr_normalizer *form, tsr_step_scratch *scratch, const tsr_piece *piece,
    tsr_piece_buffer *ret) {
  if (tsr_normalizer_is_plain(form, piece->text, piece->length))
    return tsr_piece_copy(ret, piece, 0, piece->length);
  tsr_piece_reserve(ret, piece->length * (size_t)tsr_normalizer_growth(form) + 1);
  ret->length =
      tsr_normalize(form, &scratch->normalize, piece->text, piece->length, ret->bytes, ret->from);
  for (size_t i = 0; i < ret->length; i++) ret->from[i] = tsr_piece_source(piece, ret->from[i]);
}

static void lower(const tsr_piece *piece, tsr_piece_buffer *ret) {
  for (character c = {0}; next_character(piece, &c);) {
    uint32_t codes[2];
    int count = tsr_char_lower(c.code, codes);
    size_t from = tsr_piece_source(piece, c.begin);
    for (int i = 0; i < count; i++) add_code(ret, codes[i], from);
  }
}

static void leave_out(unsigned classes, const tsr_piece *piece, tsr_piece_buffer *ret) {
  const uint16_t *table = tsr_char_classes();
  for (character c = {0}; next_character(piece, &c);)
    if (!(table[c.code] & classes)) tsr_piece_copy(ret, piece, c.begin, c.end);
}

static void strip(const tsr_step *step, const tsr_piece *piece, tsr_piece_buffer *ret) {
  size_t begin = 0, end = 0; /* behind the last character that is no space */
  bool is_inside = !step->strips_left;
  for (character c = {0}; next_character(piece, &c);) {
    bool is_space = tsr_utf8_is_space(c.code);
    if (!is_inside && is_space) begin = c.end;
    is_inside |= !is_space;
    if (!is_space) end = c.end;
  }
  if (!step->strips_right) end = piece->length;
  if (end > begin) tsr_piece_copy(ret, piece, begin, end);
}

/* Where a step writes what it makes of matches. */
typedef struct {
  const tsr_step *step;
  const tsr_piece *piece;
  tsr_piece_buffer *ret;
} replacement;

/* What replaces a match is made of its last character, as the package has it. */
static bool replace_segment(void *context, size_t begin, size_t end, bool is_match) {
  replacement *r = context;
  if (!is_match) tsr_piece_copy(r->ret, r->piece, begin, end);
  else
    tsr_piece_add(
        r->ret, r->step->content, r->step->content_length,
        end ? tsr_piece_source(r->piece, end - 1) : 0);
  return true;
}

static void prepend(const tsr_step *step, const tsr_piece *piece, tsr_piece_buffer *ret) {
  size_t length = step->content_length, from = tsr_piece_source(piece, 0);
  bool is_there = piece->length >= length && !memcmp(piece->text, step->content, length);
  bool adds = !(step->unless_there && is_there) && !(step->at_begin && from);
  if (adds) tsr_piece_add(ret, step->content, length, from);
  tsr_piece_copy(ret, piece, 0, piece->length);
}

static bool nmt_leaves_out(uint32_t code) {
  return (code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f ||
         code == 0x8f || code == 0x9f;
}

static bool nmt_makes_space(uint32_t code) {
  return code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
         (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
         code == 0xfeff || code == 0xfffd;
}

static void apply_nmt(const tsr_piece *piece, tsr_piece_buffer *ret) {
  for (character c = {0}; next_character(piece, &c);) {
    if (nmt_leaves_out(c.code)) continue;
    if (nmt_makes_space(c.code)) tsr_piece_add(ret, " ", 1, tsr_piece_source(piece, c.begin));
    else tsr_piece_copy(ret, piece, c.begin, c.end);
  }
}

static void clean(const tsr_piece *piece, tsr_piece_buffer *ret) {
  const uint16_t *classes = tsr_char_classes();
  for (character c = {0}; next_character(piece, &c);) {
    if (classes[c.code] & TSR_CHAR_CONTROL) continue;
    if (tsr_utf8_is_space(c.code)) tsr_piece_add(ret, " ", 1, tsr_piece_source(piece, c.begin));
    else tsr_piece_copy(ret, piece, c.begin, c.end);
  }
}

/* BERT's ranges, with the package's U+2B920 where U+2B820 would be right. */
static bool is_ideograph(uint32_t code) {
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
         (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b81f) ||
         (code >= 0x2b920 && code <= 0x2ceaf) || (code >= 0xf900 && code <= 0xfaff) ||
         (code >= 0x2f800 && code <= 0x2fa1f);
}

static void space_ideographs(const tsr_piece *piece, tsr_piece_buffer *ret) {
  for (character c = {0}; next_character(piece, &c);) {
    size_t from = tsr_piece_source(piece, c.begin);
    bool is_spaced = is_ideograph(c.code);
    if (is_spaced) tsr_piece_add(ret, " ", 1, from);
    tsr_piece_copy(ret, piece, c.begin, c.end);
    if (is_spaced) tsr_piece_add(ret, " ", 1, from);
  }
}

static void map_bytes(const tsr_piece *piece, tsr_piece_buffer *ret) {
  tsr_piece_reserve(ret, 2 * piece->length);
  size_t from = 0;
  for (size_t i = 0; i < piece->length; i++) {
    char letter[TSR_UTF8_BYTES_MAX];
    unsigned char byte = (unsigned char)piece->text[i];
    if ((byte & 0xc0) != 0x80) from = tsr_piece_source(piece, i); /* of the whole character */
    tsr_piece_add(ret, letter, (size_t)tsr_byte_letter(byte, letter), from);
  }
}

bool tsr_step_change(
    const tsr_step *step, tsr_step_scratch *scratch, const tsr_piece *piece,
    tsr_piece_buffer *ret) {
  ret->length = 0;
  if (!piece->length) return true;
  switch (step->kind) {
  case TSR_STEP_FORM:
    return apply_form(step->form, scratch, piece, ret), true;
  case TSR_STEP_LOWER:
    return lower(piece, ret), true;
  case TSR_STEP_LEAVE_OUT:
    return leave_out(step->classes, piece, ret), true;
  case TSR_STEP_STRIP:
    return strip(step, piece, ret), true;
  case TSR_STEP_REPLACE:
    return tsr_step_segments(
        step, scratch->match, piece->text, piece->length, replace_segment,
        &(replacement){step, piece, ret});
  case TSR_STEP_PREPEND:
    return prepend(step, piece, ret), true;
  case TSR_STEP_CHARSMAP:
    return tsr_charsmap_apply(step->charsmap, piece, ret), true;
  case TSR_STEP_NMT:
    return apply_nmt(piece, ret), true;
  case TSR_STEP_CLEAN:
    return clean(piece, ret), true;
  case TSR_STEP_IDEOGRAPHS:
    return space_ideographs(piece, ret), true;
  case TSR_STEP_BYTE_LETTERS:
    return map_bytes(piece, ret), true;
  default:
    return tsr_piece_copy(ret, piece, 0, piece->length), true;
  }
}

// SPDX-License-Identifier: Apache-2.0
/* The steps that cut a piece: behaviours of Split, scripts, lengths. */
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"

/* Segments that become parts; one waits while the next may join it. */
typedef struct {
  const tsr_step *step;
  const tsr_piece *piece;
  tsr_part_function part;
  void *context;
  bool waits, was_match; /* of the segment before */
  size_t begin, end;     /* of what waits */
} cutter;

static bool give(const cutter *c, size_t begin, size_t end) {
  if (begin == end) return true;
  tsr_piece part = tsr_piece_part(c->piece, begin, end);
  return c->part(c->context, &part);
}

/* Whether a segment joins the one that waits. */
static bool joins(const cutter *c, bool is_match) {
  switch (c->step->behavior) {
  case TSR_SPLIT_MERGED_WITH_PREVIOUS:
    return is_match && !c->was_match;
  case TSR_SPLIT_MERGED_WITH_NEXT:
    return !is_match && c->was_match;
  case TSR_SPLIT_CONTIGUOUS:
    return is_match == c->was_match;
  default:
    return false;
  }
}

static bool add_segment(void *context, size_t begin, size_t end, bool is_match) {
  cutter *c = context;
  is_match ^= c->step->inverts;
  if (c->step->behavior == TSR_SPLIT_ISOLATED) return give(c, begin, end);
  if (c->step->behavior == TSR_SPLIT_REMOVED) return is_match || give(c, begin, end);
  bool ok = true;
  if (c->waits && joins(c, is_match)) {
    c->end = end;
  } else {
    ok = !c->waits || give(c, c->begin, c->end);
    c->begin = begin;
    c->end = end;
  }
  c->waits = true;
  c->was_match = is_match;
  return ok;
}

/* What stands before the first character of a script is left out: so it is in the package. */
static bool cut_scripts(const cutter *c) {
  const tsr_piece *piece = c->piece;
  int last = -1; /* none yet */
  size_t begin = 0;
  bool has_begun = false;
  for (size_t at = 0; at < piece->length;) {
    uint32_t code = 0;
    size_t bytes = (size_t)tsr_utf8_next(piece->text + at, piece->length - at, &code);
    int script = tsr_char_script(code);
    if (script && script != last) {
      if (has_begun && !give(c, begin, at)) return false;
      has_begun = true;
      begin = at;
      last = script;
    }
    at += bytes;
  }
  return !has_begun || give(c, begin, piece->length);
}

static bool cut_lengths(const cutter *c) {
  size_t begin = 0, at = 0, length = c->piece->length;
  for (int64_t count = 0; at < length;) {
    do at++;
    while (at < length && ((unsigned char)c->piece->text[at] & 0xc0) == 0x80);
    if (++count < c->step->count && at < length) continue;
    if (!give(c, begin, at)) return false;
    begin = at;
    count = 0;
  }
  return true;
}

bool tsr_step_cut(
    const tsr_step *step, tsr_match *match, const tsr_piece *piece, tsr_part_function part,
    void *context) {
  cutter c = {.step = step, .piece = piece, .part = part, .context = context};
  if (step->kind == TSR_STEP_SCRIPTS) return cut_scripts(&c);
  if (step->kind == TSR_STEP_LENGTH) return cut_lengths(&c);
  return tsr_step_segments(step, match, piece->text, piece->length, add_segment, &c) &&
         (!c.waits || give(&c, c.begin, c.end));
}

// SPDX-License-Identifier: Apache-2.0
#include "jinja/render.h"
#include "base/utf8.h"
#include "jinja/run.h"

struct tsr_jinja_template {
  tsr_jinja_block body;
  bool has_generation;
};

static tsr_location location_at(const char *file, const char *text, size_t offset) {
  tsr_location location = {file, 1, 1, 1};
  for (size_t i = 0; i < offset; i++) {
    location.col++;
    if (text[i] == '\n') location.line++, location.col = 1;
  }
  return location;
}

bool tsr_jinja_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length,
    tsr_jinja_template **ret_template, tsr_diags *diags) {
  tsr_jinja_template *t = tsr_arena_alloc(arena, sizeof *t);
  tsr_diags_source(diags, file, text, length);
  size_t valid = tsr_utf8_valid(text, length);
  if (valid < length)
    return tsr_diag_error(
        diags, location_at(file, text, valid), "invalid UTF-8: byte 0x%02x",
        (unsigned char)text[valid]);
  if (!tsr_jinja_parse_block(arena, file, text, length, &t->body, &t->has_generation, diags))
    return false;
  return *ret_template = t, true;
}

bool tsr_jinja_has_generation(const tsr_jinja_template *of) { return of->has_generation; }

bool tsr_jinja_render(
    tsr_arena *arena, const tsr_jinja_template *of, const tsr_jinja_dict *variables,
    const tsr_jinja_limits *limits, tsr_jinja_output *ret_output, tsr_diags *diags) {
  tsr_jinja_run r = {.arena = arena, .diags = diags, .output = ret_output};
  *ret_output = (tsr_jinja_output){0};
  if (limits) r.limits = *limits;
  if (!r.limits.steps_max) r.limits.steps_max = 10000000;
  if (!r.limits.bytes_max) r.limits.bytes_max = 256 << 20;
  r.out = &ret_output->text;
  tsr_jinja_scope *given = tsr_jinja_new_scope(&r, NULL);
  given->names = *variables;
  r.scope = tsr_jinja_new_scope(&r, given);
  if (tsr_jinja_run_block(&r, &of->body) && !r.failed) return true;
  tsr_text_free(&ret_output->text);
  return false;
}

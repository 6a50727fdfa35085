// SPDX-License-Identifier: Apache-2.0
/* Renders a template with the variables of JSON files, for tests: prints a line of JSON for each,
 * {"text": …, "spans": [[begin, end], …]} with the bytes of {% generation %} blocks, or
 * {"error": …}.
 * usage: render_template TEMPLATE JSON… */
#include "base/file_read.h"
#include "base/json.h"
#include "jinja/render.h"
#include "tests/printed.h"
#include <stdlib.h>

enum { BYTES_MAX = 1 << 26, NOW = 1700000000 };

static bool
render(tsr_arena *arena, const char *path, const char *json, tsr_jinja_output *out, tsr_diags *d) {
  char *text;
  size_t length;
  tsr_jinja_template *of;
  tsr_jinja_value variables;
  const tsr_jinja_limits limits = {.now = NOW};
  if (!tsr_file_read(arena, path, BYTES_MAX, TSR_NOWHERE, &text, &length, d) ||
      !tsr_jinja_parse(arena, path, text, length, &of, d) ||
      !tsr_file_read(arena, json, BYTES_MAX, TSR_NOWHERE, &text, &length, d))
    return false;
  tsr_json_fault fault;
  if (!tsr_jinja_read_json(arena, text, length, &variables, &fault))
    return tsr_diag_error(
        d, (tsr_location){.file = json}, "byte %zu: %s", fault.offset, fault.message);
  if (variables.kind != TSR_JINJA_DICT)
    return tsr_diag_error(d, (tsr_location){json, 1, 1, 1}, "expected an object");
  return tsr_jinja_render(arena, of, variables.dict, &limits, out, d);
}

static void print_output(const tsr_jinja_output *out) {
  tsr_text line = {0};
  tsr_text_add(&line, "{\"text\": ");
  tsr_json_add_text(&line, out->text.data ? out->text.data : "", out->text.length);
  tsr_text_add(&line, ", \"spans\": [");
  for (int i = 0; i < out->spans_count; i++)
    tsr_text_add(
        &line, "%s[%lld, %lld]", i ? ", " : "", (long long)out->spans[i].begin,
        (long long)out->spans[i].end);
  printf("%s]}\n", line.data);
  tsr_text_free(&line);
}

int main(int count, char **arguments) {
  for (int i = 2; i < count; i++) {
    tsr_arena *arena = tsr_arena_new();
    tsr_diags *diags = tsr_diags_new(arena);
    tsr_jinja_output out;
    if (render(arena, arguments[1], arguments[i], &out, diags)) {
      print_output(&out);
      tsr_text_free(&out.text);
    } else {
      print_diags_json(arena, diags);
    }
    tsr_arena_free(arena);
  }
  return 0;
}

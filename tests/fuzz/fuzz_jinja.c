// SPDX-License-Identifier: Apache-2.0
/* A template and, behind a NUL, variables as JSON; rendered twice within small limits: the same
 * text, in UTF-8, with spans inside of it. */
#include "base/utf8.h"
#include "jinja/render.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool render(
    tsr_arena *arena, const tsr_jinja_template *of, tsr_jinja_value v, tsr_jinja_output *out,
    tsr_diags *diags) {
  static const tsr_jinja_limits limits = {.steps_max = 20000, .bytes_max = 1 << 17, .now = 1};
  if (!tsr_jinja_render(arena, of, v.dict, &limits, out, diags)) return false;
  size_t length = out->text.length;
  assert(!length || tsr_utf8_valid(out->text.data, length) == length);
  for (int i = 0; i < out->spans_count; i++)
    assert(
        out->spans[i].begin >= 0 && out->spans[i].begin <= out->spans[i].end &&
        out->spans[i].end <= (int64_t)length);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char plain[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9 <b>\"}, "
                              "{\"role\": \"assistant\","
                              " \"content\": [{\"type\": \"text\", \"text\": \"x\"}]}], \"n\": 3, "
                              "\"f\": 1.5, \"l\": [1, null]}";
  const char *text = (const char *)data;
  size_t length = strnlen(text, size);
  bool has_variables = length < size;
  const char *json = has_variables ? text + length + 1 : plain;
  size_t json_length = has_variables ? size - length - 1 : sizeof plain - 1;
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_jinja_template *of;
  tsr_jinja_value v;
  tsr_json_fault fault;
  tsr_jinja_output first, second;
  if (tsr_jinja_parse(arena, "fuzz.jinja", text, length, &of, diags) &&
      tsr_jinja_read_json(arena, json, json_length, &v, &fault) && v.kind == TSR_JINJA_DICT &&
      render(arena, of, v, &first, diags)) {
    bool ok = render(arena, of, v, &second, diags);
    assert(ok && first.text.length == second.text.length);
    assert(!first.text.length || !memcmp(first.text.data, second.text.data, first.text.length));
    tsr_text_free(&first.text);
    tsr_text_free(&second.text);
  }
  FILE *sink = fopen("/dev/null", "w");
  tsr_diags_print(diags, sink);
  fclose(sink);
  tsr_arena_free(arena);
  return 0;
}

/* What tsr_graph_call says to every kind of mistake, word by word. */
#include "tests/check.h"
#include "tests/run/harness.h"
#include <stdlib.h>

static tsr_graph *make_graph(tsr_arena *arena) {
  tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = 1, .tp = 4});
  harness_inputs(g, "x 2,3,8; t 2,3 tokens; y 2,3,6; flat 6; deep 1,2,2,2,3; deept 1,2,2,2 tokens");
  harness_params(g, "w 4,8; b 4; n 8; table 9,8; cube 2,2,2; s 8,8");
  return g;
}

/* The messages and hints of a print, without the quoted source: "4: there is no op 'x' = did you mean 'y'?". */
static char *messages(tsr_arena *arena, char *text) {
  char *out = tsr_arena_strdup(arena, "");
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    int column = 0, at = 0;
    if (sscanf(line, "call:1:%d: error: %n", &column, &at) == 1 && at)
      out = tsr_arena_printf(arena, "%s%s%d: %s", out, *out ? " | " : "", column, line + at);
    else if (line[strspn(line, " ")] == '=') out = tsr_arena_printf(arena, "%s %s", out, line + strspn(line, " "));
  }
  return out;
}

static void expect(const char *call, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_graph *g = make_graph(arena);
  int value;
  bool ok = harness_try(g, call, &value, diags);
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  CHECK_AT(!ok, "'%s' is not refused", call);
  CHECK_STR(messages(arena, text), want);
  free(text);
  tsr_arena_free(arena);
}

static void expect_fine(const char *call, const char *shape) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = make_graph(arena);
  const tsr_value *v = &g->values[harness_call(g, call)];
  v = &g->values[v - g->values];
  CHECK_STR(tsr_shape_text(v->ndim, v->shape), shape);
  tsr_arena_free(arena);
}

int main(void) {
#include "call_errors.h"
  expect_fine("r: linear(x, w, b)", "(2, 3, 4)");
  expect_fine("r: embedding(t, table)", "(2, 3, 8)");
  expect_fine("r: matmul(s, table, transpose_b: 1)", "(8, 9)");
  expect_fine("r: transpose(x, dim0: -1, dim1: 0)", "(8, 3, 2)");
  expect_fine("r: slice(x, dim: -1, begin: 2, end: 5)", "(2, 3, 3)");
  expect_fine("r: split(x, sections: 4)", "(2, 3, 2)");
  expect_fine("r: reshape(x, shape: [4, 12])", "(4, 12)");
  expect_fine("r: attention(x, x, x, head_dim: 4)", "(2, 3, 8)");
  expect_fine("r: cross_entropy(x, t, valid: 7)", "(1)");
  expect_fine("r: mse(x, x)", "(1)");
  expect_fine("r: all_gather(x, axis: tp)", "(2, 3, 8)");
  return check_done("call");
}

// SPDX-License-Identifier: Apache-2.0
#include "prove/proof_table.h"
#include "prove/recorded_run.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  const tsr_prove_request *request;
  const tsr_reduced_run *plan;
  tsr_text *text;
} printer;

enum { NAME_WIDTH = 28, NUMBER_WIDTH = 12 };

static void
add_line(tsr_text *text, const char *name, const char *full, const char *reduced, const char *why) {
  bool kept = !strcmp(full, reduced);
  tsr_text_add(text, "  %-*s %*s", NAME_WIDTH, name, NUMBER_WIDTH, full);
  if (!kept || *why) tsr_text_add(text, " %*s", NUMBER_WIDTH, kept ? "" : reduced);
  tsr_text_add(text, "%s%s\n", *why ? "  " : "", why);
}

static void
add_numbers(tsr_text *text, const char *name, int64_t full, int64_t reduced, const char *why) {
  add_line(text, name, tsr_text_count(full).text, tsr_text_count(reduced).text, why);
}

static tsr_short_text grouped(const char *number) {
  char *end;
  long long n = strtoll(number, &end, 10);
  tsr_short_text text;
  if (*number && !*end) return tsr_text_count(n);
  snprintf(text.text, sizeof text.text, "%s", number);
  return text;
}

static void add_sizes(const printer *p) {
  const tsr_reduced_sizes *sizes = &p->plan->sizes;
  const tsr_config *c = p->request->config;
  for (int i = 0; i < sizes->count; i++) {
    const tsr_reduced_size *row = &sizes->rows[i];
    const char *why = row->why;
    if (!strcmp(row->full, "0")) continue; /* what it counts is not there */
    const tsr_yaml *given = c->model.map ? tsr_yaml_get(c->model.map, "vocab_size") : NULL;
    int64_t vocabulary = 0;
    bool counted = !strcmp(row->name, "vocab_size") &&
                   !(given && tsr_yaml_int(given, &vocabulary) && vocabulary > 0);
    if (counted)
      why = tsr_arena_printf(
          p->request->arena, "%s%scounted in the data, or assumed", why, *why ? "; " : "");
    add_line(p->text, row->name, grouped(row->full).text, grouped(row->reduced).text, why);
  }
  int literal = sizes->literal_tensors;
  if (literal)
    tsr_text_add(
        p->text, "  %d tensor%s dimensions written as numbers, which stay\n", literal,
        literal == 1 ? " has" : "s have");
}

static void add_runs(const printer *p) {
  const tsr_reduced_run *plan = p->plan;
  int mesh = plan->mesh.compiled.programs.pipeline->microbatches;
  int single = plan->single.compiled.programs.pipeline->microbatches;
  bool small = tsr_recording_ends_small(p->request->config);
  tsr_text_add(
      p->text, "proof: %d steps%s on ", TSR_PROVE_STEPS, small ? " and one of a small loss" : "");
  tsr_reduced_mesh_print(&plan->shape, p->text);
  if (plan->shape.ranks > 1) tsr_text_add(p->text, ", %lld ranks", (long long)plan->shape.ranks);
  if (plan->shape.ranks > 1 || mesh != single) tsr_text_add(p->text, ", and on one rank");
  if (mesh != single) tsr_text_add(p->text, " in %d microbatch%s", single, single == 1 ? "" : "es");
}

static void add_table(const printer *p) {
  const tsr_reduced_run *plan = p->plan;
  add_runs(p);
  tsr_text_add(p->text, "; on the CPU, with synthetic samples\n");
  add_line(p->text, "size", "full", "reduced", "split by, or why it stays");
  for (int i = 0; i < plan->shape.count; i++) {
    const tsr_reduced_axis *d = &plan->shape.dims[i];
    add_numbers(p->text, d->name, d->full, d->reduced, d->why);
  }
  for (int i = 0; i < plan->rows_count; i++) {
    const tsr_run_row *row = &plan->rows[i];
    add_numbers(p->text, row->name, row->full, row->reduced, row->why);
  }
  add_sizes(p);
}

/* ---- placements ---- */

static const tsr_value *find_param(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM && !strcmp(g->values[v].name, name))
      return &g->values[v];
  return NULL;
}

static bool placed_alike(const tsr_placement *a, const tsr_placement *b) {
  return a->kind == b->kind && (a->kind != TSR_SHARD || a->dim == b->dim);
}

/* Parameters of the reduced model that are placed otherwise than at full size. */
static void add_placements(const printer *p) {
  const tsr_graph *full = p->request->training->placed, *g = p->plan->mesh.compiled.placed;
  const int *sizes = p->plan->shape.size;
  int compared = 0, other = 0;
  const char *first = NULL;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    const tsr_value *same = value->kind == TSR_VALUE_PARAM ? find_param(full, value->name) : NULL;
    if (!same) continue;
    bool alike = true;
    for (int a = 0; a < TSR_AXES; a++)
      alike &= sizes[a] == 1 || placed_alike(&value->placement[a], &same->placement[a]);
    compared++;
    other += !alike;
    if (!alike && !first) first = value->name;
  }
  tsr_text_add(
      p->text, "placements: %d of %d parameters are placed as at full size", compared - other,
      compared);
  tsr_text_add(p->text, other ? ", '%s' is the first that is not\n" : "\n", first);
}

void tsr_proof_table_print(
    const tsr_prove_request *request, const tsr_reduced_run *plan, tsr_text *text) {
  printer p = {request, plan, text};
  add_table(&p);
  add_placements(&p);
}

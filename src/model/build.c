// SPDX-License-Identifier: Apache-2.0
/* requires: a model's map and its graph file. produces: the Graph and the sizes that the trainer
 * needs. */
#include "model/build.h"
#include "model/uneven_shards.h"
#include <assert.h>

static tsr_model *make_model(tsr_arena *arena, const tsr_scope *scope, tsr_graph *g) {
  tsr_model *m = tsr_arena_alloc(arena, sizeof *m);
  m->graph = g;
  m->vocab_size = tsr_sizes_get(scope, "vocab_size");
  m->vocab_padded = m->vocab_size ? tsr_sizes_get(scope, "vocab_padded") : 0;
  m->max_sequence_length = tsr_sizes_get(scope, "max_sequence_length");
  m->sequence = tsr_sizes_get(scope, "sequence");
  m->features = tsr_sizes_get(scope, "input_features");
  m->reads_batch = tsr_scope_find(scope, "batch")->is_read;
  m->num_labels = tsr_sizes_get(scope, "num_labels");
  m->classes = tsr_sizes_get(scope, "output_features");
  return m;
}

/* Stages stop at the first with errors: later ones would only repeat them in other words. */
bool tsr_model_build(
    tsr_arena *arena, const tsr_model_source *source, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags) {
  assert(options->batch >= 1 && options->units.tp >= 1);
  tsr_graph_file *file;
  tsr_scope scope = {.arena = arena};
  bool read = tsr_graph_file_read(arena, source->root, &file, diags);
  if (!file->name) file->name = source->name ? source->name : "unnamed";
  if (!tsr_sizes_read(&scope, file, source, options, diags) || !read) return false;
  if (!tsr_checks_run(&scope, file, diags)) return false;
  tsr_graph *g = tsr_graph_new(arena, file->name, options->units);
  g->drop_units = options->drop_units;
  tsr_flat flat = {
      .arena = arena, .file = file, .options = options, .scope = &scope, .diags = diags};
  flat.uneven = source->uneven;
  flat.scratch = tsr_arena_new();
  bool ok = tsr_flat_expand(&flat) && tsr_flat_emit(&flat, g);
  tsr_arena_free(flat.scratch);
  if (!ok || !tsr_uneven_expand(g, &g, diags)) return false;
  *ret_model = make_model(arena, &scope, g);
  tsr_sizes_defaults(&scope, file, *ret_model);
  return true;
}
